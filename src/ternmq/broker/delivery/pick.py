"""Choosing rows for a pull: which rows of a group one consumer gets next, and leasing them.

Rows that came back (a lost consumer, a retry) go first but take at most half of a pull while new
ones wait, so a failing message cannot starve the rest. New rows come as whole batches; with a
filter only those that pass, and batches whose tags cannot match are not even read; in an ordered
group the first unsettled row of each key. Positions or batches that are not in memory are read by
a thread, and the group is fed again when they are there.
"""

from ternmq.broker.delivery.handout import NOBODY, Handout, Slice, clipped, note_waits, sequences_of
from ternmq.broker.delivery.lookup import Lookup, passing
from ternmq.broker.delivery.pick_by_priority import PriorityPicker
from ternmq.broker.delivery.pick_ordered import HeldSlots, OrderedPicker
from ternmq.broker.groups.consumer_group import ConsumerGroup, WaitingPull
from ternmq.broker.groups.failure_notes import NOTES_PER_PULL, FailureNote
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane_event import LaneEvent, Piece
from ternmq.broker.groups.lease import DETACHED, Lease, detached_ms, lock_of
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.storage.consume.entry import ConsumeEntry

log = get_logger()


class RowPicker:
    """Chooses which rows of a group's lane a pull gets."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        lookup: Lookup,
        lease_ms: int,
        held_slots: HeldSlots,
    ) -> None:
        self._groups = groups
        self._lease_ms = lease_ms
        self._lookup = lookup
        self._ordered_picker = OrderedPicker(groups=groups, lookup=lookup, held_slots=held_slots)
        self._priority_picker = PriorityPicker(groups=groups, lookup=lookup)

    def take(
        self, group: ConsumerGroup, pull: WaitingPull, rows_max: int, size_max: int
    ) -> tuple[Handout | None, int, int]:
        """Lease rows of one group; returns them with how many rows and bytes they are."""
        if group.settings.paused or group.halted:
            return NOBODY
        lane = group.lane
        if group.order is not None:
            again, slices = self._ordered_picker.take(group, group.order, rows_max, size_max)
            if not again:
                return NOBODY
            lease = self._lease(group, pull)
            changes = [lane.hand_out(lease, again, lane.next)]
            return self._handed_out(group, lease, slices, changes)
        if group.settings.priority:
            return self._take_by_priority(group, pull, rows_max, size_max)
        again, slices = [], []
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
                self._lookup.feed_soon(group)
            return NOBODY
        lease = self._lease(group, pull)
        if group.filter is None:
            changes = [lane.hand_out(lease, again, new_end)]
        else:
            changes = lane.hand_out_some(lease, again, sequences_of(fresh), new_end)
        return self._handed_out(group, lease, slices, changes)

    def _take_by_priority(
        self, group: ConsumerGroup, pull: WaitingPull, rows_max: int, size_max: int
    ) -> tuple[Handout | None, int, int]:
        ranks = self._priority_picker.of(group)
        again, slices = self._slices(group, ranks.pick(rows_max), size_max)
        if not again:
            return NOBODY
        ranks.handed_out(again)
        lease = self._lease(group, pull)
        changes = [group.lane.hand_out(lease, again, group.lane.next)]
        return self._handed_out(group, lease, slices, changes)

    def take_suspect(self, group: ConsumerGroup, pull: WaitingPull) -> Handout | None:
        """Lease one row that may have killed consumers, alone."""
        lane, order = group.lane, group.order
        piece = lane.suspect()
        if order is not None:
            head = order.suspect(lane.poison.suspects)
            piece = None if head is None else (head, head + 1, lane.returned.get(head) or 1)
        if piece is None:
            return None
        again, slices = self._slices(group, [piece], 0)
        if not slices:
            return None  # Gone from the log (and counted), or being read.
        if order is not None:
            order.take_one(piece[0])
        lease = self._lease(group, pull)
        changes = [lane.hand_out(lease, again, lane.next)]
        return self._handed_out(group, lease, slices, changes)[0]._replace(alone=True)

    def _lease(self, group: ConsumerGroup, pull: WaitingPull) -> Lease:
        now, number = self._groups.now(), self._groups.new_lease(group)
        consumer = pull.consumer
        if not pull.key:
            return Lease(number, consumer.session, consumer.id, now + self._lease_ms, since=now)
        until = now + detached_ms(now, pull.lease_ms)
        lock = lock_of(pull.key)
        return Lease(number, consumer.session, DETACHED, until, since=now, lock=lock)

    def _handed_out(
        self, group: ConsumerGroup, lease: Lease, slices: list[Slice], changes: list[LaneEvent]
    ) -> tuple[Handout, int, int]:
        self._groups.write(group, changes)
        self._groups.wake(group, lease.deadline)
        note_waits(group, slices, lease.rows.count, (lease.since, self._groups.now_ms()))
        size = sum(piece.entry.size for piece in slices)
        failure_notes: list[tuple[int, int, FailureNote]] = []
        if group.lane.failure_notes.count:
            for first, end, attempt in lease.rows:
                if attempt > 1:
                    failure_notes += group.lane.failure_notes.overlap(first, end)
        return Handout(group, lease.id, slices, failure_notes=failure_notes), lease.rows.count, size

    def _take_matching(
        self, group: ConsumerGroup, rows_max: int, size_max: int
    ) -> tuple[int, list[Slice]]:
        """New rows that pass the group's filter; batches that cannot hold one are not read."""
        lane, wanted = group.lane, group.filter
        assert wanted is not None
        at, size = lane.next, 0
        slices: list[Slice] = []
        for entry in self._lookup.entries(group, at) or ():
            base, end = entry.base_sequence, min(entry.base_sequence + entry.count, lane.end)
            if base > at:
                if at > lane.next:
                    break
                self._groups.write(group, lane.skip_gap(base))
                at = lane.next
            if wanted.may_match(entry.tag_bloom):
                if slices and size + entry.size > size_max:
                    break
                view = self._lookup.view(group, entry)
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

    def _take_new(
        self, group: ConsumerGroup, rows_max: int, size_max: int
    ) -> tuple[int, list[Slice]]:
        """Never handed out rows from `next` on: whole batches, and perhaps a part of the first.

        The last one is cut too where all before it would be less than half of what is wanted: a
        consumer that came to stand within a batch would get small answers ever after.
        """
        lane, enough = group.lane, rows_max // 2
        entries = self._lookup.entries(group, lane.next, rows_max=rows_max, size_max=size_max)
        if entries is None:
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
            if slices and size + entry.size > size_max:
                break
            if slices and end - at > rows_max and rows_max <= enough:
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
        self, group: ConsumerGroup, rows_max: int, size_max: int
    ) -> tuple[list[Piece], list[Slice]]:
        """Rows that were handed out before, lowest first, with their attempts."""
        return self._slices(group, group.lane.peek_returned(rows_max), size_max)

    def _slices(
        self, group: ConsumerGroup, pieces: list[Piece], size_max: int
    ) -> tuple[list[Piece], list[Slice]]:
        """Where rows lie; those that are gone are counted, those beyond `size_max` left out."""
        taken: list[Piece] = []
        slices: list[Slice] = []
        size = noted = 0
        for first, end, attempt in self._sifted(group, pieces):
            at = first
            if group.lane.failure_notes.count:
                noted += len(group.lane.failure_notes.overlap(first, end))
                if taken and noted > NOTES_PER_PULL:
                    break
            while at < end:
                entry: ConsumeEntry | None = slices[-1].entry if slices else None
                if entry is None or not 0 <= at - entry.base_sequence < entry.count:
                    entries = self._lookup.entries(group, at, rows_max=1, size_max=1)
                    if entries is None:
                        return taken, slices
                    entry = entries[0] if entries and entries[0].base_sequence < end else None
                if entry is None:
                    self._groups.write(group, group.lane.lose(at, end))
                    break
                if entry.base_sequence > at:
                    self._groups.write(group, group.lane.lose(at, entry.base_sequence))
                    at = entry.base_sequence
                if not slices or not slices[-1].precedes(entry, at):
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

    def _sifted(self, group: ConsumerGroup, pieces: list[Piece]) -> list[Piece]:
        """Without rows that an earlier filter chose and that do not pass the one of today."""
        if group.filter is None or group.order is not None:  # An `Order` begins with its filter.
            return pieces
        kept: list[Piece] = []
        for first, end, attempt in pieces:
            at = first
            while at < min(end, group.unsifted):
                entries = self._lookup.entries(group, at, rows_max=1, size_max=1)
                if entries is None:
                    return kept
                base = entries[0].base_sequence if entries else end
                if base > at:  # Not in the log any more: to be counted by who asked.
                    kept.append((at, min(base, end), attempt))
                    at = base
                    continue
                view = self._lookup.view(group, entries[0])
                if view is None:
                    return kept
                stop = min(end, base + entries[0].count)
                fine = RangeSet((base + a, base + b) for a, b in passing(group, view))
                kept += [(a, b, attempt) for a, b in fine.overlap(at, stop)]
                for a, b in fine.gaps(at, stop):
                    self._groups.write(group, group.lane.filter_out(a, b))
                    self._lookup.feed_soon(group)
                at = stop
            if at < end:
                kept.append((at, end, attempt))
        return kept
