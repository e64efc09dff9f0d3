"""One group on one lane: where each message of a sequence is, as that group sees it.

Theory of operation
-------------------
Every sequence from `start` to `end` is in exactly one place:

    ready       never handed out (`next` .. `end`), or handed out and back (`returned`)
    in flight   in a lease, or on its way to the dead letters (`dying`)
    waiting     to be handed out again later (`waiting`, due at a moment)
    settled     `done`: acked, dead, skipped, expired or filtered; each counted

so the ledger's line balances by construction, and `ledger()` asserts it. State is ranges: handing
out a thousand rows and acking them touches one range. Moments are milliseconds of a clock that
only goes forward.

Rules
-----
1. No I/O, no clock, no randomness: the caller passes `now`.
2. Every change that must survive a restart is returned as a `Change`; applying the same changes in
   the same order to an empty lane (`replay.apply`) gives the same lane. Losing the last ones
   means that rows are handed out again, never that they are lost.
3. A lease is named by a number that is never used twice while the broker lives.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from ternmq.core.pieces import PieceMap
from ternmq.core.ranges import RangeSet
from ternmq.core.retry import delay_ms
from ternmq.storage.pull_log import Kind

Piece = tuple[int, int, int]  # first, end, attempt
BY_POLICY = 1 << 62  # Marks a RETRY record whose delay came from the group's policy.
NO_SESSION = bytes(16)


class Change(NamedTuple):
    """One step of one lane, ready for the pull log."""

    kind: Kind
    ranges: tuple[Piece, ...]
    lease: int = 0
    session: bytes = NO_SESSION
    argument: int = 0
    text: bytes = b""


@dataclass(slots=True)
class Lease:
    """Rows that a consumer holds until a moment. Owner 0: its connection is gone, for now."""

    id: int
    session: bytes
    owner: int
    deadline: int
    rows: PieceMap[int] = field(default_factory=PieceMap)


class Wait(NamedTuple):
    """Rows that come again: when, as which attempt, and since when (None: not by the policy)."""

    due: int
    attempt: int
    failed_at: int | None


class Settled(NamedTuple):
    """What became of an ack: rows that changed, rows that were not this lease's any more."""

    changes: list[Change]
    settled: int
    late: int
    dying: tuple[Piece, ...] = ()


class Line(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How the rows of one verdict are retried; `explicit_ms` -1 leaves it to the policy."""

    policy: str
    attempts_max: int
    explicit_ms: int = -1
    chance: float = 0.0

    def after(self, attempt: int) -> int:
        if self.explicit_ms >= 0:
            return self.explicit_ms
        return delay_ms(self.policy, attempt, self.chance)


class Lane:
    """The state machine. All public methods leave the ledger balanced."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.next = start
        self.end = start
        self.generation = 1
        self.returned: PieceMap[int] = PieceMap()  # Value: attempt.
        self.waiting: PieceMap[Wait] = PieceMap()
        self.leases: dict[int, Lease] = {}
        self.dying: PieceMap[int] = PieceMap()  # Value: attempt.
        self.done = RangeSet()
        self.dead = self.skipped = self.expired = self.filtered = 0
        self._due: list[tuple[int, int, int]] = []  # Heap of due, first, end; may be out of date.

    # -- looking

    def ready(self) -> int:
        return self.end - self.next + self.returned.count

    def ledger(self) -> Line:
        """Count every row once."""
        in_flight = sum(lease.rows.count for lease in self.leases.values()) + self.dying.count
        other = self.dead + self.skipped + self.expired + self.filtered
        line = Line(
            start=self.start, end=self.end, total=self.end - self.start, ready=self.ready(),
            in_flight=in_flight, waiting_retry=self.waiting.count, acked=self.done.count - other,
            filtered=self.filtered, skipped=self.skipped, dead=self.dead, expired=self.expired,
            generation=self.generation,
        )  # fmt: skip
        assert line.total == sum(line[3:11]), f"the ledger does not balance: {line}"
        return line

    def wake_at(self) -> int | None:
        """The next moment at which `tick` has something to do."""
        moments = [lease.deadline for lease in self.leases.values()]
        if self._due:
            moments.append(self._due[0][0])
        return min(moments, default=None)

    # -- handing out

    def grow(self, end: int) -> None:
        """More messages are safe; only ever forward."""
        self.end = max(self.end, end)

    def skip_gap(self, first_kept: int) -> list[Change]:
        """What was stored before `first_kept` and never handed out is gone (retention, damage)."""
        first_kept = min(first_kept, self.end)
        if first_kept <= self.next:
            return []
        gap = (self.next, first_kept, 0)
        self._expire(gap[0], gap[1])
        return [Change(Kind.EXPIRED, (gap,))]

    def lose(self, first: int, end: int) -> list[Change]:
        """Rows that turned out unreadable while ready or in a lease: counted as expired."""
        taken = [*self.returned.cut(first, end), *self._cut_leases(first, end)]
        pieces = tuple((a, b, 0) for a, b, _ in taken)
        for a, b, _ in pieces:
            self.expired += self.done.add(a, b)
        return [Change(Kind.EXPIRED, pieces)] if pieces else []

    def pass_over(self, filtered: list[tuple[int, int]], new_end: int) -> list[Change]:
        """New rows up to `new_end` were looked at, and all of them are filtered."""
        assert self.next <= new_end <= self.end
        pieces = tuple((first, end, 0) for first, end in filtered)
        self.next = new_end
        for first, end, _ in pieces:
            self.filtered += self.done.add(first, end)
        return [Change(Kind.FILTERED, pieces)] if pieces else []

    def hand_out_some(
        self, lease: Lease, again: list[Piece], fresh: list[tuple[int, int]], new_end: int
    ) -> list[Change]:
        """Of the new rows up to `new_end` put `fresh` into a lease; the others are filtered."""
        filtered = RangeSet(fresh).gaps(self.next, new_end)
        changes = self.pass_over(filtered, new_end)
        for first, end in fresh:
            self.returned.put(first, end, 1)
        pieces = [*again, *((first, end, 1) for first, end in fresh)]
        return [*changes, self.hand_out(lease, pieces, self.next)]

    def filter_out(self, first: int, end: int) -> list[Change]:
        """Rows that were known to be ready turn out to be filtered."""
        pieces = tuple((a, b, 0) for a, b, _ in self.returned.cut(first, end))
        for a, b, _ in pieces:
            self.filtered += self.done.add(a, b)
        return [Change(Kind.FILTERED, pieces)] if pieces else []

    def hand_out(self, lease: Lease, again: list[Piece], new_end: int) -> Change:
        """Put rows into a lease: `again` were returned, and everything new up to `new_end`."""
        for first, end, attempt in again:
            self.returned.cut(first, end)
            lease.rows.put(first, end, attempt)
        ranges = list(again)
        if new_end > self.next:
            assert new_end <= self.end
            lease.rows.put(self.next, new_end, 1)
            ranges.append((self.next, new_end, 1))
            self.next = new_end
        assert ranges
        self.leases[lease.id] = lease
        return Change(Kind.HANDED_OUT, tuple(ranges), lease.id, lease.session)

    def peek_returned(self, rows_max: int) -> list[Piece]:
        """The lowest returned rows, without taking them."""
        found: list[Piece] = []
        for first, end, attempt in self.returned:
            if rows_max <= 0:
                break
            end = min(end, first + rows_max)
            found.append((first, end, attempt))
            rows_max -= end - first
        return found

    # -- settling

    def look_ahead(self, end: int) -> None:
        """Rows up to `end` are known one by one: they are picked from among the returned ones."""
        assert self.next <= end <= self.end
        self.returned.put(self.next, end, 1)
        self.next = end

    def ack(self, lease_id: int, first: int, end: int, *, strict: bool = False) -> Settled:
        """Rows are handled. An ack after the lease is lost counts unless someone else has them;
        in ordered groups (`strict`) it is refused: the next one of the key may be out already."""
        cut = self._cut_lease if strict else self._cut_held
        taken = cut(lease_id, first, end)
        pieces = tuple((a, b, 0) for a, b, _ in taken)
        count = 0
        for a, b, _ in pieces:
            count += self.done.add(a, b)
        changes = [Change(Kind.ACKED, pieces, lease_id)] if pieces else []
        return Settled(changes, count, max(0, end - first - count))

    def retry(self, lease_id: int, first: int, end: int, *, rule: RetryRule, now: int) -> Settled:
        """Rows come again after a while, to this group only, as the next attempt.

        Those whose last attempt this was begin to die instead.
        """
        taken = self._cut_lease(lease_id, first, end)
        count = sum(b - a for a, b, _ in taken)
        changes: list[Change] = []
        dying: list[Piece] = []
        for a, b, attempt in taken:
            if rule.attempts_max and attempt >= rule.attempts_max:
                self.dying.put(a, b, attempt)
                dying.append((a, b, attempt))
                continue
            after_ms = rule.after(attempt)
            by_policy = rule.explicit_ms < 0
            self.wait(a, b, attempt + 1, now + after_ms, now if by_policy else None)
            argument = after_ms | (BY_POLICY if by_policy else 0)
            changes.append(Change(Kind.RETRY, ((a, b, attempt + 1),), lease_id, argument=argument))
        return Settled(changes, count, max(0, end - first - count), tuple(dying))

    def reschedule(self, rule: RetryRule) -> None:
        """The policy changed: what waits because of it waits by the new one (R12)."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self._due.clear()
        for first, end, (due, attempt, failed_at) in waiting:
            if failed_at is not None:
                due = failed_at + rule.after(attempt - 1)
            self.wait(first, end, attempt, due, failed_at)

    def begin_dying(self, lease_id: int, first: int, end: int) -> list[Piece]:
        """Rows are refused for good: hold them while their copies become safe."""
        taken = self._cut_lease(lease_id, first, end)
        for a, b, attempt in taken:
            self.dying.put(a, b, attempt)
        return taken

    def died(self, first: int, end: int, *, expired: bool = False) -> list[Change]:
        """The copies are safe: now the originals are dead, or expired (a TTL that ran out)."""
        pieces = tuple((a, b, attempt) for a, b, attempt in self.dying.cut(first, end))
        for a, b, _ in pieces:
            if expired:
                self.expired += self.done.add(a, b)
            else:
                self.dead += self.done.add(a, b)
        kind = Kind.EXPIRED if expired else Kind.DEAD
        return [Change(kind, pieces)] if pieces else []

    def survived(self, first: int, end: int, *, due: int) -> list[Change]:
        """The copies could not be stored: the rows come again, as the same attempt, when due."""
        pieces = tuple(self.dying.cut(first, end))
        for a, b, attempt in pieces:
            self.wait(a, b, attempt, due, None)
        return [Change(Kind.RETURNED, pieces)] if pieces else []

    # -- leases

    def renew(self, lease_id: int, owner: int, deadline: int) -> bool:
        lease = self.leases.get(lease_id)
        if lease is None or lease.owner != owner:
            return False
        lease.deadline = deadline
        return True

    def adopt(self, lease_id: int, session: bytes, owner: int, deadline: int) -> bool:
        """A client that came back presents a lease of its own."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.session != session:
            return False
        lease.owner, lease.deadline = owner, deadline
        return True

    def orphan(self, owner: int, deadline: int) -> None:
        """The owner's connection is gone; it has until `deadline` to come back."""
        for lease in self.leases.values():
            if lease.owner == owner:
                lease.owner, lease.deadline = 0, min(lease.deadline, deadline)

    def release(self, owner: int | None) -> list[Change]:
        """Give back everything an owner holds (None: everything that anybody holds)."""
        changes: list[Change] = []
        for lease in [x for x in self.leases.values() if owner is None or x.owner == owner]:
            changes += self._end_lease(lease)
        return changes

    def tick(self, now: int) -> list[Change]:
        """Leases past their deadline come back; retries that are due become ready."""
        changes: list[Change] = []
        for lease in [x for x in self.leases.values() if x.deadline <= now]:
            changes += self._end_lease(lease)
        while self._due and self._due[0][0] <= now:
            due, first, end = heappop(self._due)
            for a, b, wait in self.waiting.cut(first, end):
                if wait.due == due:
                    self.returned.put(a, b, wait.attempt)
                else:
                    self.waiting.put(a, b, wait)
        return changes

    # -- decisions

    def reset(self, target: int) -> Change:
        """Go on from `target`: forward skips, backward hands out again as a new generation."""
        self.go_to(target)
        return Change(Kind.RESET, ((target, target, 0),))

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
        self.dying.cut(end, beyond)
        self._cut_leases(end, beyond)
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
        self.dying.cut(first, end)
        self._cut_leases(first, end)

    def wait(self, first: int, end: int, attempt: int, due: int, failed_at: int | None) -> None:
        self.waiting.put(first, end, Wait(due, attempt, failed_at))
        heappush(self._due, (due, first, end))

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
        if sum(b - a for a, b, _ in taken) < end - first:
            taken += self.returned.cut(first, end)
            taken += [(a, b, wait.attempt) for a, b, wait in self.waiting.cut(first, end)]
        return taken

    def _end_lease(self, lease: Lease) -> list[Change]:
        del self.leases[lease.id]
        return self._give_back(tuple(lease.rows), lease.id)

    def _give_back(self, pieces: Iterable[Piece], lease_id: int) -> list[Change]:
        given = tuple(pieces)
        for first, end, attempt in given:
            self.returned.put(first, end, attempt)
        return [Change(Kind.RETURNED, given, lease_id)] if given else []

    def _expire(self, first: int, end: int) -> None:
        self.expired += self.done.add(first, end)
        self.next = max(self.next, end)

    def go_to(self, target: int) -> None:
        for change in self.release(None):
            assert change.kind is Kind.RETURNED
        for first, end, attempt in list(self.dying):
            self.returned.put(first, end, attempt)
        self.dying.clear()
        handled_beyond = len(self.done) > 0 and self.done.end() > target
        if handled_beyond or target < self.start:
            self._begin(target)
            return
        for first, end in self.done.gaps(self.start, target):
            self.skipped += self.done.add(first, end)
        self.returned.cut(self.start, target)
        self.waiting.cut(self.start, target)
        self.next = max(self.next, target)
        self.end = max(self.end, target)

    def _begin(self, target: int) -> None:
        """A new generation: everything from `target` on is ready, what was counted is history."""
        self.generation += 1
        self.start = self.next = target
        self.end = max(self.end, target)
        self.returned.clear()
        self.waiting.clear()
        self._due.clear()
        self.done = RangeSet()
        self.dead = self.skipped = self.expired = self.filtered = 0
