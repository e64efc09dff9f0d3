"""Keeps the state of every row of a lane, and makes the small steps between states.

Every sequence from `start` to `end` is in exactly one state:

    ready       never handed out (`next` .. `end`), or handed out and back (`returned`)
    in flight   in a lease, or on its way to the dead letters (`moving`)
    waiting     to be handed out again later (`waiting`, due at a moment)
    settled     `done`: acked, dead, skipped, expired or filtered; each counted

so the ledger's line balances by construction, and `ledger()` asserts it. What may happen to rows is
the `Lane`'s business. Pure memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ternmq.broker.groups.failure_notes import NOTES_MAX, FailureNote
from ternmq.broker.groups.lane_event import LaneEvent, Piece
from ternmq.broker.groups.lease import Lease, Wait
from ternmq.broker.groups.poison import PoisonSuspects
from ternmq.broker.groups.retry_timer import RetryTimer
from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet
from ternmq.storage.pull.record import PullKind


class LedgerRow(NamedTuple):
    """The ledger's line for this lane."""

    start: int
    end: int
    total: int
    ready: int
    in_flight: int
    waiting_retry: int
    acked: int
    filtered: int
    skipped: int
    dead: int
    expired: int
    generation: int


@dataclass(slots=True, kw_only=True)
class SavedRows:
    """Where the rows of a lane were when a snapshot was made; what was held or waits is put in by
    the steps that put it there then."""

    next: int
    end: int
    generation: int = 1
    returned: IntervalMap[int] = field(default_factory=IntervalMap)
    poison: PoisonSuspects = field(default_factory=PoisonSuspects)
    failure_notes: IntervalMap[FailureNote] = field(default_factory=IntervalMap)
    done: RangeSet = field(default_factory=RangeSet)
    dead: int = 0
    skipped: int = 0
    expired: int = 0
    filtered: int = 0


class RowStates:
    """Which state each row of one lane is in."""

    def __init__(self, start: int, saved: SavedRows | None = None) -> None:
        """Without `saved` nothing has happened yet."""
        saved = saved or SavedRows(next=start, end=start)
        self.start = start
        self.next = saved.next
        self.end = saved.end
        self.generation = saved.generation
        self.returned = saved.returned  # Value: attempt.
        self.waiting: IntervalMap[Wait] = IntervalMap()
        self.leases: dict[int, Lease] = {}
        self.moving: IntervalMap[int] = IntervalMap()  # Value: attempt.
        self.poison = saved.poison
        self.failure_notes = saved.failure_notes  # Why unsettled rows failed the last time.
        self.done = saved.done
        self.dead, self.skipped = saved.dead, saved.skipped
        self.expired, self.filtered = saved.expired, saved.filtered
        self._retry_timer = RetryTimer()
        self.newest_lease = 0
        self.oldest_lease = 0
        """Leases below this are of an older generation; not kept in snapshots."""
        self.passed: list[tuple[int, int]] | None = None
        """What the last reset skipped, for who keeps account; None: it began a new generation."""

    # -- looking

    def ready(self) -> int:
        return self.end - self.next + self.returned.count

    def in_flight(self) -> int:
        """Rows that consumers hold, without counting them one by one."""
        elsewhere = self.done.count + self.returned.count + self.waiting.count
        return self.next - self.start - elsewhere

    def ledger(self) -> LedgerRow:
        """Count every row once."""
        in_flight = sum(lease.rows.count for lease in self.leases.values()) + self.moving.count
        other = self.dead + self.skipped + self.expired + self.filtered
        line = LedgerRow(
            start=self.start,
            end=self.end,
            total=self.end - self.start,
            ready=self.ready(),
            in_flight=in_flight,
            waiting_retry=self.waiting.count,
            acked=self.done.count - other,
            filtered=self.filtered,
            skipped=self.skipped,
            dead=self.dead,
            expired=self.expired,
            generation=self.generation,
        )
        assert line.total == sum(line[3:11]), f"the ledger does not balance: {line}"
        return line

    def wake_at(self) -> int | None:
        """The next moment at which `tick` has something to do."""
        moments = [lease.deadline for lease in self.leases.values()]
        due = self._retry_timer.next()
        if due is not None:
            moments.append(due)
        return min(moments, default=None)

    # -- going elsewhere

    def cut_to(self, end: int) -> None:
        """The message log ends here: what was known beyond never happened."""
        lost = self.done.remove(end, max(self.done.end(), end)) if len(self.done) else 0
        others = self.dead + self.skipped + self.expired + self.filtered
        excess = max(0, others - self.done.count) if lost else 0
        for name in ("dead", "expired", "filtered", "skipped"):
            taken = min(excess, getattr(self, name))
            setattr(self, name, getattr(self, name) - taken)
            excess -= taken
        beyond = max(self.next, self.end) + 1
        self.returned.cut(end, beyond)
        self.waiting.cut(end, beyond)
        self.moving.cut(end, beyond)
        self._cut_leases(end, beyond)
        self.poison.forget(end, beyond)
        self.failure_notes.cut(end, beyond)
        self.start = min(self.start, end)
        self.next, self.end = min(self.next, end), end

    # -- the small steps

    def forget(self, first: int, end: int) -> None:
        """Take rows out of wherever they are; never handed out ones below them become returned."""
        if end > self.next:
            if first > self.next:
                self.returned.put(self.next, first, 1)
            self.next = end
        self.returned.cut(first, end)
        self.waiting.cut(first, end)
        self.moving.cut(first, end)
        self._cut_leases(first, end)

    def wait(self, first: int, end: int, attempt: int, due: int, failed_at: int | None) -> None:
        wait = self._retry_timer.add(first, end, Wait(due, attempt, failed_at))
        self.waiting.put(first, end, wait)

    def _finish(self, first: int, end: int) -> int:
        self.poison.forget(first, end)
        if self.failure_notes.count:
            self.failure_notes.cut(first, end)
        return self.done.add(first, end)

    def note(self, first: int, end: int, note: FailureNote | None) -> None:
        """Why rows failed; beyond the bound, and without a reason, nothing is known."""
        if note is not None and len(self.failure_notes) < NOTES_MAX:
            self.failure_notes.put(first, end, note)
        elif self.failure_notes.count:
            self.failure_notes.cut(first, end)

    def _cut_lease(self, lease_id: int, first: int, end: int) -> list[Piece]:
        lease = self.leases.get(lease_id)
        if lease is None:
            return []
        taken = lease.rows.cut(first, end)
        if not lease.rows.count:
            del self.leases[lease_id]
        return taken

    def _cut_leases(self, first: int, end: int) -> list[Piece]:
        taken: list[Piece] = []
        for lease_id in list(self.leases):
            taken += self._cut_lease(lease_id, first, end)
        return taken

    def _cut_held(self, lease_id: int, first: int, end: int) -> list[Piece]:
        """Rows of this lease, and rows that nobody else holds by now."""
        taken = self._cut_lease(lease_id, first, end)
        if len(taken) == 1 and taken[0][1] - taken[0][0] == end - first:
            return taken  # Mostly.
        if sum(b - a for a, b, _ in taken) < end - first:
            taken += self.returned.cut(first, end)
            taken += [(a, b, wait.attempt) for a, b, wait in self.waiting.cut(first, end)]
        return taken

    def _end_lease(self, lease: Lease) -> list[LaneEvent]:
        del self.leases[lease.id]
        return self._give_back(tuple(lease.rows), lease.id)

    def _give_back(self, pieces: Iterable[Piece], lease_id: int) -> list[LaneEvent]:
        given = tuple(pieces)
        for first, end, attempt in given:
            self.returned.put(first, end, attempt)
        return [LaneEvent(PullKind.RETURNED, given, lease_id)] if given else []

    def _expire(self, first: int, end: int) -> None:
        self.expired += self._finish(first, end)
        self.next = max(self.next, end)

    def go_to(self, target: int) -> None:
        for lease in list(self.leases.values()):
            self._end_lease(lease)
        for first, end, attempt in list(self.moving):
            self.returned.put(first, end, attempt)
        self.moving.clear()
        handled_beyond = len(self.done) > 0 and self.done.end() > target
        passed = self.done.gaps(self.start, target) if target > self.start else []
        if handled_beyond or target < self.start:
            self.passed = None
            self._begin(target, sum(end - first for first, end in passed))
            return
        self.passed = passed
        for first, end in self.passed:
            self.skipped += self._finish(first, end)
        self.returned.cut(self.start, target)
        self.waiting.cut(self.start, target)
        self.next = max(self.next, target)
        self.end = max(self.end, target)

    def _begin(self, target: int, skipped: int) -> None:
        """A new generation: everything from `target` on is ready, what was counted is history. What
        is skipped was not counted: it is the beginning of the new line, as many rows as it was,
        next to `target` and not where each one lay."""
        self.generation += 1
        self.oldest_lease = self.newest_lease + 1
        self.start, self.next = target - skipped, target
        self.end = max(self.end, target)
        self.returned.clear()
        self.waiting.clear()
        self.poison.clear()
        self.failure_notes.clear()
        self._retry_timer.clear()
        self.done = RangeSet()
        self.dead = self.expired = self.filtered = 0
        self.skipped = self.done.add(self.start, target) if skipped else 0
