"""One group on one lane: what may happen to the messages of a sequence, as that group sees it.

Theory of operation
-------------------
`RowStates` knows where every row is; this says what may happen to it. State is ranges: handing out
a thousand rows and acking them touches one range. Moments are milliseconds of a clock that only
goes forward.

Rules
-----
1. No I/O, no clock, no randomness: the caller passes `now`.
2. Every change that must survive a restart is returned as a `LaneEvent`; applying the same changes
   in the same order to an empty lane (`replay.apply`) gives the same lane. Losing the last ones
   means that rows are handed out again, never that they are lost.
3. A lease is named by a number that is never used twice while the broker lives.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from ternmq.broker.groups.failure_notes import FailureNote, pack_failure
from ternmq.broker.groups.lane_event import BY_POLICY, RANGES_TOGETHER, LaneEvent, Piece, Settled
from ternmq.broker.groups.lease import DETACHED, NEVER, Lease, RetryRule, Wait
from ternmq.broker.groups.poison import was_alone
from ternmq.broker.groups.row_states import LedgerRow, RowStates
from ternmq.core.range_set import RangeSet
from ternmq.storage.pull.record import PullKind

__all__ = [
    "BY_POLICY",
    "Lane",
    "LaneEvent",
    "Lease",
    "LedgerRow",
    "Piece",
    "RetryRule",
    "Settled",
    "Wait",
]

TICK_RANGES_MAX = 2_000  # Ranges that one tick brings back: about ten milliseconds of the loop.
BY_DEFAULT = RetryRule("default", 0)
VANISHED = pack_failure("ConsumerLost", "its consumer vanished while handling it", "")
OVERDUE = pack_failure("LeaseExpired", "it was not settled before its detached lease was over", "")


class Why(NamedTuple):
    """What rows failed of, packed by `failure_notes`, and the time of day."""

    text: bytes
    at_ms: int


NO_REASON = Why(b"", 0)


class Lane(RowStates):
    """The state machine. All public methods leave the ledger balanced."""

    # -- handing out

    def grow(self, end: int) -> None:
        """More messages are safe; only ever forward."""
        self.end = max(self.end, end)

    def skip_gap(self, first_kept: int) -> list[LaneEvent]:
        """What was stored before `first_kept` and never handed out is gone (retention, damage)."""
        first_kept = min(first_kept, self.end)
        if first_kept <= self.next:
            return []
        gap = (self.next, first_kept, 0)
        self._expire(gap[0], gap[1])
        return [LaneEvent(PullKind.EXPIRED, (gap,))]

    def lose(self, first: int, end: int) -> list[LaneEvent]:
        """Rows that turned out unreadable while ready or in a lease: counted as expired."""
        taken = [*self.returned.cut(first, end), *self._cut_leases(first, end)]
        pieces = tuple((a, b, 0) for a, b, _ in taken)
        for a, b, _ in pieces:
            self.expired += self._finish(a, b)
        return [LaneEvent(PullKind.EXPIRED, pieces)] if pieces else []

    def pass_over(self, filtered: list[tuple[int, int]], new_end: int) -> list[LaneEvent]:
        """New rows up to `new_end` were looked at, and all of them are filtered."""
        assert self.next <= new_end <= self.end
        pieces = tuple((first, end, 0) for first, end in filtered)
        self.next = new_end
        for first, end, _ in pieces:
            self.filtered += self._finish(first, end)
        return [LaneEvent(PullKind.FILTERED, pieces)] if pieces else []

    def hand_out_some(
        self, lease: Lease, again: list[Piece], fresh: list[tuple[int, int]], new_end: int
    ) -> list[LaneEvent]:
        """Of the new rows up to `new_end` put `fresh` into a lease; the others are filtered."""
        filtered = RangeSet(fresh).gaps(self.next, new_end)
        changes = self.pass_over(filtered, new_end)
        for first, end in fresh:
            self.returned.put(first, end, 1)
        pieces = [*again, *((first, end, 1) for first, end in fresh)]
        return [*changes, self.hand_out(lease, pieces, self.next)]

    def filter_out(self, first: int, end: int) -> list[LaneEvent]:
        """Rows that were known to be ready, or wait for a retry, turn out to be filtered."""
        taken = [*self.returned.cut(first, end), *self.waiting.cut(first, end)]
        pieces = tuple((a, b, 0) for a, b, _ in taken)
        for a, b, _ in pieces:
            self.filtered += self._finish(a, b)
        return [LaneEvent(PullKind.FILTERED, pieces)] if pieces else []

    def hand_out(self, lease: Lease, again: list[Piece], new_end: int) -> LaneEvent:
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
        self.newest_lease = max(self.newest_lease, lease.id)
        kept_ms = lease.deadline - lease.since if lease.lock else 0
        return LaneEvent(
            PullKind.HANDED_OUT, tuple(ranges), lease.id, lease.session, kept_ms, lease.lock
        )

    def peek_returned(self, rows_max: int) -> list[Piece]:
        """The lowest returned rows, without taking them; suspects are handed out alone."""
        found: list[Piece] = []
        for first, end, attempt in self.returned:
            for a, b in self.poison.unsuspected(first, end):
                b = min(b, a + rows_max)
                found.append((a, b, attempt))
                rows_max -= b - a
                if rows_max <= 0:
                    return found
        return found

    def suspect(self) -> Piece | None:
        """A ready row that may have killed consumers, to be handed out alone."""
        return self.poison.first_suspect(self.returned) if len(self.poison.suspects) else None

    # -- settling

    def look_ahead(self, end: int) -> None:
        """Rows up to `end` are known one by one: they are picked from among the returned ones."""
        assert self.next <= end <= self.end
        self.returned.put(self.next, end, 1)
        self.next = end

    def ack(self, lease_id: int, first: int, end: int, *, strict: bool = False) -> Settled:
        """Rows are handled; see `ack_all`."""
        return self.ack_all(lease_id, [(first, end)], strict=strict)

    def ack_all(
        self, lease_id: int, ranges: list[tuple[int, int]], *, strict: bool = False
    ) -> Settled:
        """Rows are handled. An ack after the lease is lost counts unless someone else has them;
        in ordered groups (`strict`) it is refused: the next one of the key may be out already. So
        it is after a reset: somebody decided that these rows come again."""
        strict = strict or lease_id < self.oldest_lease
        cut = self._cut_lease if strict else self._cut_held
        finish = (
            self._finish if self.poison.rows.count or self.failure_notes.count else self.done.add
        )
        pieces: list[Piece] = []
        count = asked = 0
        for first, end in ranges:
            asked += end - first
            for a, b, _ in cut(lease_id, first, end):
                count += finish(a, b)
                pieces.append((a, b, 0))
        changes = [LaneEvent(PullKind.ACKED, tuple(pieces), lease_id)] if pieces else []
        return Settled(changes, count, asked - count)

    def retry(
        self,
        lease_id: int,
        first: int,
        end: int,
        *,
        rule: RetryRule,
        now: int,
        why: Why = NO_REASON,
    ) -> Settled:
        """Rows come again after a while, to this group only, as the next attempt.

        Those whose last attempt this was begin to move to the dead letters instead.
        """
        taken = self._cut_lease(lease_id, first, end)
        count = 0
        changes: list[LaneEvent] = []
        moving: list[Piece] = []
        for piece in taken:
            count += piece[1] - piece[0]
            self.poison.forget(piece[0], piece[1])
            change = self._failed(piece, PullKind.RETRY, lease_id, rule=rule, now=now, why=why)
            if change is None:
                moving.append(piece)
            else:
                changes.append(change)
        return Settled(changes, count, max(0, end - first - count), tuple(moving))

    def _failed(
        self, piece: Piece, kind: PullKind, lease_id: int, *, rule: RetryRule, now: int, why: Why
    ) -> LaneEvent | None:
        """An attempt failed: the rows wait for the next one; None if that was the last."""
        first, end, attempt = piece
        if rule.last(attempt) and rule.stops:
            return self._stop(piece, lease_id, why)
        if rule.last(attempt):
            self.moving.put(first, end, attempt)
            return None
        after_ms = rule.after(attempt)
        by_policy = rule.explicit_ms < 0
        self.wait(first, end, attempt + 1, now + after_ms, now if by_policy else None)
        argument = after_ms | (BY_POLICY if by_policy else 0)
        note = FailureNote(text=why.text, at_ms=why.at_ms) if why.text else None
        self.note(first, end, note)
        ranges = ((first, end, attempt + 1),)
        return LaneEvent(kind, ranges, lease_id, argument=argument, text=why.text, note=note)

    def _stop(self, piece: Piece, lease_id: int, why: Why) -> LaneEvent:
        """The rows wait for a decision, and in ordered groups their keys with them."""
        first, end, attempt = piece
        self.wait(first, end, attempt + 1, NEVER, None)
        note = FailureNote(text=why.text, at_ms=why.at_ms) if why.text else None
        self.note(first, end, note)
        ranges = ((first, end, attempt + 1),)
        return LaneEvent(PullKind.STOPPED, ranges, lease_id, text=why.text, note=note)

    def let_go(self, first: int, end: int) -> list[LaneEvent]:
        """Rows that wait are ready now, as the attempt they waited for."""
        pieces = tuple((a, b, wait.attempt) for a, b, wait in self.waiting.cut(first, end))
        return self._give_back(pieces, 0)

    def stop_waiting(self, first: int, end: int) -> list[Piece]:
        """Rows that wait will not be tried again: hold them while their copies become safe."""
        taken = [(a, b, wait.attempt - 1) for a, b, wait in self.waiting.cut(first, end)]
        for piece in taken:
            self.moving.put(*piece)
        return taken

    def reschedule(self, rule: RetryRule) -> None:
        """The policy changed: what waits because of it waits by the new one (R12)."""
        waiting = list(self.waiting)
        self.waiting.clear()
        self._retry_timer.clear()
        for first, end, (due, attempt, failed_at) in waiting:
            if failed_at is not None:
                due = failed_at + rule.after(attempt - 1)
            self.wait(first, end, attempt, due, failed_at)

    def wait_no_more(self) -> list[LaneEvent]:
        """Everything that waits for a retry is ready, as if it had never been tried."""
        pieces = tuple((first, end, 1) for first, end, _ in self.waiting)
        self.waiting.clear()
        self._retry_timer.clear()
        for first, end, attempt in pieces:
            self.returned.put(first, end, attempt)
        return [
            LaneEvent(PullKind.RETURNED, pieces[at : at + RANGES_TOGETHER])
            for at in range(0, len(pieces), RANGES_TOGETHER)
        ]

    # -- leaving, because their bytes go

    def unsettled_below(self, end: int) -> bool:
        return self.done.first_gap(self.start) < min(end, self.end)

    def in_flight_below(self, end: int) -> bool:
        held = any(lease.rows.overlap(0, end) for lease in self.leases.values())
        return held or bool(self.moving.overlap(0, end))

    def call_in(self, end: int, rows_max: int) -> list[Piece]:
        """Rows below `end` that were handed out and are not settled: hold them while their copies
        become safe, as those that move. At most so many; the others are left to `give_up`."""
        called: list[Piece] = []
        for first, stop, attempt in self._take_below(end):
            kept = min(stop, first + rows_max)
            if first < kept:
                self.moving.put(first, kept, attempt)
                called.append((first, kept, attempt))
                rows_max -= kept - first
            if kept < stop:
                self.returned.put(kept, stop, attempt)
        return called

    def give_up(self, end: int) -> list[LaneEvent]:
        """Everything below `end` that is unsettled and not moving is expired."""
        pieces = [(first, stop, 0) for first, stop, _ in self._take_below(end)]
        for first, stop, _ in pieces:
            self.expired += self._finish(first, stop)
        changes = [
            LaneEvent(PullKind.EXPIRED, tuple(pieces[at : at + RANGES_TOGETHER]))
            for at in range(0, len(pieces), RANGES_TOGETHER)
        ]
        return changes + self.skip_gap(end)

    def _take_below(self, end: int) -> list[Piece]:
        waiting = [(a, b, wait.attempt) for a, b, wait in self.waiting.cut(0, end)]
        return sorted([*self.returned.cut(0, end), *waiting, *self._cut_leases(0, end)])

    def give_back(self, lease_id: int, first: int, end: int) -> Settled:
        """Rows that nobody has looked at are ready again, as the same attempt."""
        taken = self._cut_lease(lease_id, first, end)
        count = sum(b - a for a, b, _ in taken)
        return Settled(self._give_back(taken, lease_id), count, max(0, end - first - count))

    def call_back(self, first: int, end: int) -> list[Piece]:
        """Ready rows that were never handed out, or came back unworked: hold them while their
        copies become safe. Not of ordered lanes, whose heads are known elsewhere, too."""
        if self.next < end <= self.end:
            self.look_ahead(end)
        called = [piece for piece in self.returned.overlap(first, end) if piece[2] == 1]
        for a, b, attempt in called:
            self.returned.cut(a, b)
            self.moving.put(a, b, attempt)
        return called

    def begin_move(self, lease_id: int, first: int, end: int) -> list[Piece]:
        """Rows are refused for good: hold them while their copies become safe."""
        taken = self._cut_lease(lease_id, first, end)
        for a, b, attempt in taken:
            self.moving.put(a, b, attempt)
        return taken

    def moved(self, first: int, end: int, *, expired: bool = False) -> list[LaneEvent]:
        """The copies are safe: now the originals are dead, or expired (a TTL that ran out)."""
        pieces = tuple((a, b, attempt) for a, b, attempt in self.moving.cut(first, end))
        for a, b, _ in pieces:
            if expired:
                self.expired += self._finish(a, b)
            else:
                self.dead += self._finish(a, b)
        kind = PullKind.EXPIRED if expired else PullKind.DEAD
        return [LaneEvent(kind, pieces)] if pieces else []

    def move_failed(self, first: int, end: int, *, due: int) -> list[LaneEvent]:
        """The copies could not be stored: the rows come again, as the same attempt, when due."""
        pieces = tuple(self.moving.cut(first, end))
        for a, b, attempt in pieces:
            self.wait(a, b, attempt, due, None)
        return [LaneEvent(PullKind.RETURNED, pieces)] if pieces else []

    # -- leases

    def renew(self, lease_id: int, owner: int, deadline: int) -> bool:
        lease = self.leases.get(lease_id)
        if lease is None or lease.owner != owner:
            return False
        lease.deadline = deadline
        return True

    def start_rows(self, lease_id: int, first: int, end: int) -> None:
        """The client began to handle rows of a lease; `poison` suspects these first."""
        lease = self.leases.get(lease_id)
        if lease is not None:
            for a, b, _ in lease.rows.overlap(first, end):
                lease.started.add(a, b)

    def adopt(self, lease_id: int, session: bytes, owner: int, deadline: int) -> bool:
        """A client that came back presents a lease of its own."""
        lease = self.leases.get(lease_id)
        if lease is None or lease.session != session or lease.owner == DETACHED:
            return False
        lease.owner, lease.deadline = owner, deadline
        return True

    def extend(self, lease_id: int, first: int, end: int, *, now: int, kept_ms: int) -> Settled:
        """Rows of a detached lease are kept for so long from now on."""
        kept = self.leases[lease_id].extend(first, end, now + kept_ms)
        count = sum(b - a for a, b, _ in kept)
        event = LaneEvent(PullKind.EXTENDED, tuple(kept), lease_id, argument=kept_ms)
        return Settled([event] if kept else [], count, end - first - count)

    def orphan(self, owner: int, deadline: int) -> None:
        """The owner's connection is gone; it has until `deadline` to come back."""
        for lease in self.leases.values():
            if lease.owner == owner:
                lease.owner, lease.deadline = 0, min(lease.deadline, deadline)

    def came_back(self, session: bytes, deadline: int) -> None:
        """A client is back: what it has not presented by `deadline` it never got, or lost."""
        for lease in self.leases.values():
            if lease.owner == 0 and lease.session == session:
                lease.deadline = min(lease.deadline, deadline)

    def release(self, owner: int | None) -> list[LaneEvent]:
        """Give back everything an owner holds (None: that anybody holds by a connection)."""
        changes: list[LaneEvent] = []
        for lease in [
            x for x in self.leases.values() if x.owner == owner or (owner is None and not x.lock)
        ]:
            changes += self._end_lease(lease)
        return changes

    def tick(self, now: int, rule: RetryRule = BY_DEFAULT, now_ms: int = 0) -> Settled:
        """Leases past their deadline are lost; retries that are due become ready."""
        changes: list[LaneEvent] = []
        moving: list[Piece] = []
        overdue: list[Piece] = []
        for lease in [x for x in self.leases.values() if x.deadline <= now]:
            if lease.lock:
                changes += self._overdue(lease, overdue, rule=rule, now=now, now_ms=now_ms)
            else:
                changes += self._lost(lease, moving, rule=rule, now=now, why=Why(VANISHED, now_ms))
        self._bring_back(now)
        return Settled(changes, 0, 0, tuple(moving), tuple(overdue))

    def _overdue(
        self, lease: Lease, moving: list[Piece], *, rule: RetryRule, now: int, now_ms: int
    ) -> Iterable[LaneEvent]:
        """Nobody can know what became of rows of a detached lease: a failed attempt, and the next
        one is due at once."""
        at_once = replace(rule, explicit_ms=0)
        for piece in lease.take_overdue(now):
            self.poison.forget(piece[0], piece[1])
            change = self._failed(
                piece, PullKind.RETRY, lease.id, rule=at_once, now=now, why=Why(OVERDUE, now_ms)
            )
            if change is None:
                moving.append(piece)
            else:
                yield change
        if not lease.rows.count:
            del self.leases[lease.id]

    def _bring_back(self, now: int) -> None:
        """Retries that are due become ready; if those are many, the others with the next tick."""
        left = TICK_RANGES_MAX
        later: list[tuple[int, int, Wait]] = []
        while left > 0 and (ranges := self._retry_timer.take(now, left)):
            left -= len(ranges)
            for first, end in ranges:
                for a, b, wait in self.waiting.cut(first, end):
                    if wait.due <= now:
                        self.returned.put(a, b, wait.attempt)
                        continue
                    self.waiting.put(a, b, wait)
                    if self._retry_timer.belongs(wait, now):
                        later.append((a, b, wait))
        for first, end, wait in later:
            self._retry_timer.add(first, end, wait)

    def _lost(
        self, lease: Lease, moving: list[Piece], *, rule: RetryRule, now: int, why: Why
    ) -> Iterable[LaneEvent]:
        """A consumer vanished: its rows come back uncounted, but one that was alone with it is
        what it died of (see `poison`)."""
        del self.leases[lease.id]
        back: list[Piece] = []
        unstarted: list[Piece] = []
        for first, end, attempt in lease.rows:
            if not lease.vanished and self.poison.untouched(first, end, lease.started):
                unstarted.append((first, end, attempt))
                continue
            for a, b, times in self.poison.add(first, end, lease.started):
                piece = (a, b, attempt)
                if not was_alone(times):
                    self.returned.put(*piece)
                    back.append(piece)
                    continue
                change = self._failed(piece, PullKind.KILLED, lease.id, rule=rule, now=now, why=why)
                if change is None:
                    moving.append(piece)
                else:
                    yield change
        if back:
            yield LaneEvent(PullKind.LOST, tuple(back), lease.id)
        yield from self._give_back(unstarted, lease.id)

    # -- decisions

    def reset(self, target: int) -> LaneEvent:
        """Go on from `target`: forward skips, backward hands out again as a new generation."""
        self.go_to(target)
        return LaneEvent(PullKind.RESET, ((target, target, 0),))
