"""Choosing rows for a pull: which rows of a group one consumer gets next, and leasing them.

Rows that came back (a lost consumer, a retry) go first but take at most half of a pull while new
ones wait, so a failing message cannot starve the rest. New rows come as whole batches; with a
filter only those that pass, and batches whose tags cannot match are not even read; in an ordered
group the first unsettled row of each key. Positions or batches that are not in memory are read by
a thread, and the group is fed again when they are there.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from ternmq.batch.envelope import ErrorRow
from ternmq.batch.view import BatchView
from ternmq.broker.change import Change, Piece
from ternmq.broker.fetch import Fetcher
from ternmq.broker.groups import Group, Groups, Member
from ternmq.broker.lease import Lease
from ternmq.broker.notes import NOTES_PER_PULL, Note
from ternmq.broker.order import Order
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.core.ranges import RangeSet
from ternmq.core.units import MIB
from ternmq.storage.consume_entry import Entry
from ternmq.storage.consume_log import ConsumeLog

log = get_logger()

SCAN_ROWS = 50_000  # How far a filter or an ordered group looks in one go.
SCAN_SIZE = 4 * MIB


class Slice(NamedTuple):
    """Rows of one stored batch that are handed out together."""

    entry: Entry
    selection: list[tuple[int, int]]
    attempts: list[int]


class Handout(NamedTuple):
    """What one pull gets of one group."""

    group: Group
    lease: int
    slices: list[Slice]
    alone: bool = False
    """A suspect (see `isolate`): its consumer holds nothing else."""
    notes: Sequence[tuple[int, int, Note]] = ()
    """Where it says why rows failed before."""
    errors: Sequence[ErrorRow] = ()
    """The same, read."""


NOBODY: tuple[None, int, int] = (None, 0, 0)


class Chooser:
    """Takes rows out of lanes."""

    def __init__(
        self,
        *,
        groups: Groups,
        consume: ConsumeLog,
        fetcher: Fetcher,
        lease_ms: int,
        feed: Callable[[Group], None],
    ) -> None:
        self._groups = groups
        self._consume = consume
        self._fetcher = fetcher
        self._lease_ms = lease_ms
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()

    def take(
        self, group: Group, member: Member, rows_max: int, size_max: int
    ) -> tuple[Handout | None, int, int]:
        """Lease rows of one group; returns them with how many rows and bytes they are."""
        if group.settings.paused or group.halted:
            return NOBODY
        if group.order is not None:
            return self._take_ordered(group, member, rows_max, size_max)
        lane = group.lane
        again: list[Piece] = []
        slices: list[Slice] = []
        if lane.returned.count:
            share = rows_max if lane.end == lane.next else max(1, rows_max // 2)
            again, slices = self._take_returned(group, share, size_max)
        rows = sum(end - first for first, end, _ in again)
        size = sum(piece.entry.size for piece in slices)
        new_end = lane.next
        fresh: list[Slice] = []
        if rows < rows_max and lane.end > lane.next and (size < size_max or not slices):
            take = self._take_new if group.filter is None else self._take_matching
            new_end, fresh = take(group, rows_max - rows, size_max - size)
        slices += fresh
        if not slices:
            if new_end > lane.next:  # Everything that was looked at is filtered.
                self._groups.write(group, lane.pass_over([(lane.next, new_end)], new_end))
                self._loop.call_soon(self._feed, group)
            return NOBODY
        lease = self._lease(group, member)
        if group.filter is None:
            changes = [lane.hand_out(lease, again, new_end)]
        else:
            changes = lane.hand_out_some(lease, again, sequences_of(fresh), new_end)
        return self._handed_out(group, lease, slices, changes)

    def take_suspect(self, group: Group, member: Member) -> Handout | None:
        """Lease one row that may have killed consumers, alone."""
        lane, order = group.lane, group.order
        piece = lane.suspect()
        if order is not None:
            head = order.suspect(lane.losses.suspects)
            piece = None if head is None else (head, head + 1, lane.returned.get(head) or 1)
        if piece is None:
            return None
        again, slices = self._slices(group, [piece], 0)
        if not slices:
            return None  # Gone from the log (and counted), or being read.
        if order is not None:
            order.take_one(piece[0])
        lease = self._lease(group, member)
        changes = [lane.hand_out(lease, again, lane.next)]
        return self._handed_out(group, lease, slices, changes)[0]._replace(alone=True)

    def _lease(self, group: Group, member: Member) -> Lease:
        until = self._groups.now() + self._lease_ms
        return Lease(self._groups.new_lease(group), member.session, member.id, until)

    def _handed_out(
        self, group: Group, lease: Lease, slices: list[Slice], changes: list[Change]
    ) -> tuple[Handout, int, int]:
        self._groups.write(group, changes)
        self._groups.wake(group, lease.deadline)
        size = sum(piece.entry.size for piece in slices)
        notes: list[tuple[int, int, Note]] = []
        if group.lane.notes.count:
            for first, end, attempt in lease.rows:
                if attempt > 1:
                    notes += group.lane.notes.overlap(first, end)
        return Handout(group, lease.id, slices, notes=notes), lease.rows.count, size

    def _take_matching(self, group: Group, rows_max: int, size_max: int) -> tuple[int, list[Slice]]:
        """New rows that pass the group's filter; batches that cannot hold one are not read."""
        lane, wanted = group.lane, group.filter
        assert wanted is not None
        at, size = lane.next, 0
        slices: list[Slice] = []
        entries = self._consume.entries_nowait(
            group.topic_id, at, rows_max=SCAN_ROWS, size_max=SCAN_SIZE
        )
        if entries is None:
            self._warm(group, at)
        for entry in entries or ():
            base, end = entry.base_sequence, min(entry.base_sequence + entry.count, lane.end)
            if base > at:
                if at > lane.next:
                    break
                self._groups.write(group, lane.skip_gap(base))
                at = lane.next
            if wanted.may_match(entry.tag_bloom):
                if slices and size + entry.size > size_max:
                    break
                view = self._view_now(group, entry)
                if view is None:
                    break
                rows = clipped(passing(group, view), at - base, end - base, rows_max)
                if rows:
                    slices.append(Slice(entry, rows, []))
                    size += entry.size
                    rows_max -= sum(b - a for a, b in rows)
                    if rows_max <= 0:
                        return base + rows[-1][1], slices
            at = end
        return at, slices

    def _view_now(self, group: Group, entry: Entry) -> BatchView | None:
        """A batch to look into; None where it has to be read first (then `feed` comes again)."""
        try:
            batches = self._fetcher.now([entry])
            if batches is not None:
                return BatchView(batches[0])
        except Corrupt as error:
            log.error("messages cannot be looked at", topic=group.topic, reason=error.message)
            self._pass_damaged(group, entry)
            return None
        self._spawn(self._read_ahead(group, entry))
        return None

    async def _read_ahead(self, group: Group, entry: Entry) -> None:
        try:
            self._fetcher.keep(entry, (await self._fetcher.later([entry]))[0])
        except TernError as error:
            log.error("messages cannot be looked at", topic=group.topic, reason=error.message)
            self._pass_damaged(group, entry)
        self._feed(group)

    def _pass_damaged(self, group: Group, entry: Entry) -> None:
        """Count the rows of a damaged batch as expired, once everything before it is handed out."""
        lane, base, end = group.lane, entry.base_sequence, entry.base_sequence + entry.count
        if base > lane.next:
            return  # Rows before it are chosen or ready: they are not damaged.
        for first, stop, _ in [p for p in lane.returned if p[0] < end and p[1] > base]:
            self._groups.write(group, lane.lose(max(first, base), min(stop, end)))
        self._groups.write(group, lane.skip_gap(end))
        if group.order is not None:
            group.order.scanned = max(group.order.scanned, end)
        self._loop.call_soon(self._feed, group)

    # -- in order

    def _take_ordered(
        self, group: Group, member: Member, rows_max: int, size_max: int
    ) -> tuple[Handout | None, int, int]:
        """The first unsettled row of every key that is not out already."""
        order, lane = group.order, group.lane
        assert order is not None
        self._learn(group, order)
        again: list[Piece] = []
        slices: list[Slice] = []
        size = 0
        taken = order.take(rows_max, lane.losses.suspects)
        for index, (sequence, entry) in enumerate(taken):
            if not slices or slices[-1].entry.base_sequence != entry.base_sequence:
                if slices and size + entry.size > size_max:
                    order.put_back([left for left, _ in taken[index:]])
                    break
                slices.append(Slice(entry, [], []))
                size += entry.size
            attempt = lane.returned.get(sequence) or 1
            row = sequence - entry.base_sequence
            selection = slices[-1].selection
            if selection and selection[-1][1] == row:
                selection[-1] = (selection[-1][0], row + 1)
            else:
                selection.append((row, row + 1))
            slices[-1].attempts.append(attempt)
            again.append((sequence, sequence + 1, attempt))
        if not again:
            return NOBODY
        lease = self._lease(group, member)
        return self._handed_out(group, lease, slices, [lane.hand_out(lease, again, lane.next)])

    def _learn(self, group: Group, order: Order) -> None:
        """Get to know rows ahead, up to the bound."""
        lane = group.lane
        while not order.full and order.scanned < lane.end:
            entries = self._consume.entries_nowait(
                group.topic_id, order.scanned, rows_max=SCAN_ROWS, size_max=SCAN_SIZE
            )
            if not entries:
                if entries is None:
                    self._warm(group, order.scanned)
                return
            for entry in entries:
                if order.full or not self._learn_batch(group, order, entry):
                    return
        if order.full and not order.ready and not group.warned:
            group.warned = True
            log.warning("ordered look-ahead is full", topic=group.topic, group=group.name)

    def _learn_batch(self, group: Group, order: Order, entry: Entry) -> bool:
        lane = group.lane
        end = entry.base_sequence + entry.count
        if end > lane.end:
            return False
        view = self._view_now(group, entry)
        if view is None:
            return False
        if entry.base_sequence > lane.next:
            self._groups.write(group, lane.skip_gap(entry.base_sequence))
        if end > lane.next:
            lane.look_ahead(end)
        if group.filter is not None:
            kept = RangeSet(passing(group, view))
            for first, stop in kept.gaps(0, entry.count):
                base = entry.base_sequence
                self._groups.write(group, lane.filter_out(base + first, base + stop))
        order.learn(entry, view.order_keys(), lane)
        return True

    def _take_new(self, group: Group, rows_max: int, size_max: int) -> tuple[int, list[Slice]]:
        """Never handed out rows from `next` on: whole batches, and perhaps a part of the first."""
        lane = group.lane
        entries = self._consume.entries_nowait(
            group.topic_id, lane.next, rows_max=rows_max, size_max=size_max
        )
        if entries is None:
            self._warm(group, lane.next)
            return lane.next, []
        if not entries:
            self._groups.write(group, lane.skip_gap(lane.end))
            return lane.next, []
        if entries[0].base_sequence > lane.next:
            self._groups.write(group, lane.skip_gap(entries[0].base_sequence))
            log.warning("messages are gone", topic=group.topic, group=group.name, upto=lane.next)
        slices: list[Slice] = []
        at = lane.next
        size = 0
        for entry in entries:
            base = entry.base_sequence
            end = min(base + entry.count, lane.end)
            if base > at or end <= at:
                break
            if slices and (end - at > rows_max or size + entry.size > size_max):
                break
            end = min(end, at + rows_max)
            slices.append(Slice(entry, [(at - base, end - base)], []))
            size += entry.size
            rows_max -= end - at
            at = end
            if rows_max <= 0:
                break
        return at, slices

    def _take_returned(
        self, group: Group, rows_max: int, size_max: int
    ) -> tuple[list[Piece], list[Slice]]:
        """Rows that were handed out before, lowest first, with their attempts."""
        return self._slices(group, group.lane.peek_returned(rows_max), size_max)

    def _slices(
        self, group: Group, pieces: list[Piece], size_max: int
    ) -> tuple[list[Piece], list[Slice]]:
        """Where rows lie; those that are gone are counted, those beyond `size_max` left out."""
        taken: list[Piece] = []
        slices: list[Slice] = []
        size = noted = 0
        for first, end, attempt in pieces:
            at = first
            noted += len(group.lane.notes.overlap(first, end))
            if taken and noted > NOTES_PER_PULL:
                break
            while at < end:
                entries = self._consume.entries_nowait(group.topic_id, at, rows_max=1, size_max=1)
                if entries is None:
                    self._warm(group, at)
                    return taken, slices
                entry = entries[0] if entries and entries[0].base_sequence < end else None
                if entry is None:
                    self._groups.write(group, group.lane.lose(at, end))
                    break
                if entry.base_sequence > at:
                    self._groups.write(group, group.lane.lose(at, entry.base_sequence))
                    at = entry.base_sequence
                if not slices or slices[-1].entry.base_sequence != entry.base_sequence:
                    if slices and size + entry.size > size_max:
                        return taken, slices
                    slices.append(Slice(entry, [], []))
                    size += entry.size
                stop = min(end, entry.base_sequence + entry.count)
                slices[-1].selection.append((at - entry.base_sequence, stop - entry.base_sequence))
                slices[-1].attempts.extend([attempt] * (stop - at))
                taken.append((at, stop, attempt))
                at = stop
        return taken, slices

    def _warm(self, group: Group, sequence: int) -> None:
        """Positions are not in memory: let a thread read them, then try again."""

        async def warm() -> None:
            await self._fetcher.run(
                lambda: self._consume.entries(group.topic_id, sequence, rows_max=1, size_max=1)
            )
            self._feed(group)

        self._spawn(warm())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)


def passing(group: Group, view: BatchView) -> list[tuple[int, int]]:
    """Rows that pass the group's filter; what cannot be read passes none, and is said so."""
    assert group.filter is not None
    try:
        return group.filter.rows(view)
    except Corrupt as error:
        log.error(
            "a batch cannot be filtered, none of it passes",
            topic=group.topic, group=group.name, sequence=view.base_sequence, reason=error.message,
        )  # fmt: skip
        return []


def sequences_of(slices: list[Slice]) -> list[tuple[int, int]]:
    """The rows of slices as ranges of sequences."""
    return [
        (piece.entry.base_sequence + first, piece.entry.base_sequence + end)
        for piece in slices
        for first, end in piece.selection
    ]


def clipped(
    ranges: list[tuple[int, int]], low: int, high: int, rows_max: int
) -> list[tuple[int, int]]:
    """The parts of ranges between `low` and `high`, at most `rows_max` rows."""
    kept: list[tuple[int, int]] = []
    for first, end in ranges:
        first, end = max(first, low), min(end, high, max(first, low) + rows_max)
        if first < end:
            kept.append((first, end))
            rows_max -= end - first
            if rows_max <= 0:
                break
    return kept
