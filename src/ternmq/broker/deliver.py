"""Handing out: a pull gets rows of its groups, now or when there are some.

Theory of operation
-------------------
A pull names how many rows and bytes it wants at most. Whole batches are handed out as they lie in
the log; only the one that does not fit is cut. Rows that came back (a lost consumer, a retry) go
first but take at most half of a pull while new ones wait, so a failing message cannot starve the
rest. Without rows the pull waits; `grew` wakes the waiters of a topic in the order they came, so
consumers share a backlog at once and any number may come and go (Q5).

Rows are leased before their bytes are read. Bytes that are not in memory are read by a thread and
the answer follows; rows whose bytes turn out to be damaged are counted as expired and said so.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ternmq.batch.cut import cut
from ternmq.batch.envelope import pack_envelope
from ternmq.batch.layout import Buffer
from ternmq.broker.fetch import Fetcher
from ternmq.broker.groups import Group, Groups, Member
from ternmq.broker.lane import Lease, Piece
from ternmq.core.errors import Corrupt, GroupNotFound, OverLimit, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.storage.consume_entry import Entry
from ternmq.storage.consume_log import ConsumeLog
from ternmq.wire.commands import DELIVERED, Command, Pull

log = get_logger()

_PULL = int(Command.PULL)
NOTHING = DELIVERED.pack(0, 0, 0)
SIZE_MAX = 3 * MIB  # With one more batch of 4 MiB an answer still fits into a frame.
ROWS_MAX = 50_000  # One record of the pull log names so many single rows.
WAIT_MAX_MS = 30_000
PULLS_MAX = 8  # Pulls of one consumer that may wait at one time.


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


class Waiter:
    """A pull without an answer yet."""

    __slots__ = ("correlation", "done", "member", "rows_max", "size_max", "timer")

    def __init__(self, member: Member, correlation: int, request: Pull) -> None:
        self.member = member
        self.correlation = correlation
        self.rows_max = min(max(request.rows_max, 1), ROWS_MAX)
        self.size_max = min(max(request.size_max, 1), SIZE_MAX)
        self.timer: asyncio.TimerHandle | None = None
        self.done = False


class Deliverer:
    """The PULL command."""

    def __init__(
        self, *, groups: Groups, consume: ConsumeLog, fetcher: Fetcher, lease_ms: int
    ) -> None:
        self._groups = groups
        self._consume = consume
        self._fetcher = fetcher
        self._lease_ms = lease_ms
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()

    def pull(self, member: Member, correlation: int, request: Pull) -> None:
        """Answer now if there are rows, else when there are, else after `wait_ms` with nothing."""
        if member.pulls >= PULLS_MAX:
            raise OverLimit(f"{PULLS_MAX} pulls of this consumer are waiting already")
        for group in member.groups:
            if group.deleted:
                raise GroupNotFound(f"group {group.name!r} of {group.topic!r} was deleted")
        waiter = Waiter(member, correlation, request)
        member.pulls += 1
        if self._serve(waiter):
            return
        if request.wait_ms <= 0:
            self._expire(waiter)
            return
        for group in member.groups:
            group.waiters.append(waiter)
        wait_s = min(request.wait_ms, WAIT_MAX_MS) / 1000
        waiter.timer = self._loop.call_later(wait_s, self._expire, waiter)

    def grew(self, topic_id: int, end: int) -> None:
        """More messages of a topic are safe."""
        for group in self._groups.of_topic(topic_id):
            group.lane.grow(end)
            if group.waiters:
                self.feed(group)

    def feed(self, group: Group) -> None:
        """Give a group's ready rows to whoever waits, in order."""
        while group.waiters and group.lane.ready():
            waiter = group.waiters[0]
            if not self._serve(waiter):
                break  # What looked ready could not be read; it was accounted for.

    def forget(self, member: Member) -> None:
        """The consumer is gone: its pulls wait no more."""
        for group in member.groups:
            for waiter in [w for w in group.waiters if w.member is member]:
                self._finish(waiter)

    def refuse(self, group: Group, error: TernError) -> None:
        """The group is gone: tell everybody who waits for it."""
        for waiter in list(group.waiters):
            self._finish(waiter)
            waiter.member.peer.fail(_PULL, waiter.correlation, error)

    def stop(self) -> None:
        """Answer every waiting pull: nothing more comes from here."""
        for group in self._groups:
            for waiter in list(group.waiters):
                self._finish(waiter)
                error = Unavailable("the broker is stopping; connect again in a moment")
                waiter.member.peer.fail(_PULL, waiter.correlation, error)

    # -- choosing rows

    def _serve(self, waiter: Waiter) -> bool:
        member = waiter.member
        rows_left, size_left = waiter.rows_max, waiter.size_max
        handouts: list[Handout] = []
        groups = member.groups
        for step in range(len(groups)):
            group = groups[(member.turn + step) % len(groups)]
            if group.deleted or not group.lane.ready():
                continue
            if rows_left <= 0 or size_left <= 0:
                break
            handout, rows, size = self._take(group, member, rows_left, size_left)
            if handout is not None:
                handouts.append(handout)
                rows_left -= rows
                size_left -= size
        if not handouts:
            return False
        member.turn += 1
        self._finish(waiter)
        self._answer(waiter, handouts)
        return True

    def _take(
        self, group: Group, member: Member, rows_max: int, size_max: int
    ) -> tuple[Handout | None, int, int]:
        """Lease rows of one group; returns them with how many rows and bytes they are."""
        lane = group.lane
        again: list[Piece] = []
        slices: list[Slice] = []
        if lane.returned.count:
            share = rows_max if lane.end == lane.next else max(1, rows_max // 2)
            again, slices = self._take_returned(group, share, size_max)
        rows = sum(end - first for first, end, _ in again)
        size = sum(piece.entry.size for piece in slices)
        new_end = lane.next
        if rows < rows_max and lane.end > lane.next and (size < size_max or not slices):
            new_end, fresh = self._take_new(group, rows_max - rows, size_max - size)
            slices += fresh
        if new_end == lane.next and not again:
            return None, 0, 0
        rows += new_end - lane.next
        size = sum(piece.entry.size for piece in slices)
        now = self._groups.now()
        lease = Lease(
            self._groups.new_lease(group), member.session, member.id, now + self._lease_ms
        )
        change = lane.hand_out(lease, again, new_end)
        self._groups.write(group, (change,))
        self._groups.schedule(group)
        return Handout(group, lease.id, slices), rows, size

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
        taken: list[Piece] = []
        slices: list[Slice] = []
        size = 0
        for first, end, attempt in group.lane.peek_returned(rows_max):
            at = first
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
            self.feed(group)

        self._spawn(warm())

    # -- answering

    def _answer(self, waiter: Waiter, handouts: list[Handout]) -> None:
        entries = [piece.entry for handout in handouts for piece in handout.slices]
        try:
            batches = self._fetcher.now(entries)
        except Corrupt:
            batches = None  # The thread finds out which ones.
        if batches is not None:
            self._send(waiter, handouts, batches)
            return
        self._spawn(self._answer_later(waiter, handouts, entries))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _answer_later(
        self, waiter: Waiter, handouts: list[Handout], entries: list[Entry]
    ) -> None:
        try:
            batches = await self._fetcher.later(entries)
        except TernError as error:
            log.error("stored messages cannot be read", reason=error.message)
            await self._answer_readable(waiter, handouts)
            return
        self._send(waiter, handouts, batches)

    async def _answer_readable(self, waiter: Waiter, handouts: list[Handout]) -> None:
        """Read one by one; what is damaged is lost and counted, the rest is handed out."""
        batches: list[Buffer] = []
        kept: list[Handout] = []
        for handout in handouts:
            slices: list[Slice] = []
            for piece in handout.slices:
                try:
                    batches += await self._fetcher.later([piece.entry])
                    slices.append(piece)
                except TernError as error:
                    self._lose(handout.group, piece, error)
            kept.append(Handout(handout.group, handout.lease, slices))
        self._send(waiter, kept, batches)

    def _lose(self, group: Group, piece: Slice, error: TernError) -> None:
        base = piece.entry.base_sequence
        log.error(
            "messages lost to damage",
            topic=group.topic, group=group.name, sequence=base, reason=error.message,
        )  # fmt: skip
        for first, end in piece.selection:
            self._groups.write(group, group.lane.lose(base + first, base + end))

    def _send(self, waiter: Waiter, handouts: list[Handout], batches: list[Buffer]) -> None:
        buffers: list[Buffer] = [NOTHING]
        count = 0
        index = 0
        for handout in handouts:
            for piece in handout.slices:
                buffers += enveloped(piece, batches[index], handout.lease, handout.group.topic_id)
                index += 1
                count += 1
        buffers[0] = DELIVERED.pack(count, 0, 0)
        waiter.member.peer.answer(_PULL, waiter.correlation, *buffers)

    # -- waiting

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.done:
            self._finish(waiter)
            waiter.member.peer.answer(_PULL, waiter.correlation, NOTHING)

    def _finish(self, waiter: Waiter) -> None:
        """The pull is answered, one way or the other."""
        if waiter.done:
            return
        waiter.done = True
        waiter.member.pulls -= 1
        if waiter.timer is not None:
            waiter.timer.cancel()
            for group in waiter.member.groups:
                if waiter in group.waiters:
                    group.waiters.remove(waiter)


def enveloped(piece: Slice, batch: Buffer, lease: int, lane: int) -> list[Buffer]:
    """The envelope and the batch, cut where most of it is not wanted."""
    entry, selection, attempts = piece
    if attempts and max(attempts) == 1:
        attempts = []
    wanted = selection[-1][1] - selection[0][0]
    if 4 * wanted < 3 * entry.count:
        smaller = cut(batch, selection[0][0], selection[-1][1])
        batch = smaller.batch
        selection = [(a - smaller.first_row, b - smaller.first_row) for a, b in selection]
        whole = False
    else:
        whole = True
    head = pack_envelope(
        lease=lease, lane=lane, selection=selection, attempts=attempts,
        batch_size=len(batch), whole=whole,
    )  # fmt: skip
    return [head, batch]
