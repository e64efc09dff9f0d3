"""The lane against a plain dictionary: every row in one place, whatever happens to it."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ternmq.broker.groups import snapshot
from ternmq.broker.groups.lane import TICK_RANGES_MAX, Lane, Lease, RetryRule
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.replay import apply
from ternmq.storage.pull.record import PullKind
from ternmq.wire.messages.groups import GroupSettings

SESSION = b"s" * 16


def hand_out(
    lane: Lane, lease_id: int, rows: int, *, owner: int = 1, until: int = 60_000
) -> LaneEvent:
    again = lane.peek_returned(rows)
    taken = sum(end - first for first, end, _ in again)
    new_end = min(lane.end, lane.next + rows - taken)
    suspect = lane.suspect()
    if not again and new_end == lane.next and suspect is not None:
        again = [suspect]
    return lane.hand_out(Lease(lease_id, SESSION, owner, until), again, new_end)


def a_lane(rows: int = 100, start: int = 0) -> Lane:
    lane = Lane(start)
    lane.grow(start + rows)
    return lane


def test_acked_rows_are_settled_and_the_line_balances() -> None:
    """Q4: progress is ranges, the ledger of design 6 balances."""
    lane = a_lane(100)
    hand_out(lane, 1, 60)

    result = lane.ack(1, 0, 50)

    line = lane.ledger()
    assert (result.settled, result.late) == (50, 0)
    assert (line.ready, line.in_flight, line.acked) == (40, 10, 50)


def test_acks_come_in_any_order() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)

    for row in random.Random(1).sample(range(10), 10):
        lane.ack(1, row, row + 1)

    assert lane.ledger().acked == 10
    assert not lane.leases
    assert len(lane.done) == 1


def test_an_ack_twice_counts_once() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)
    lane.ack(1, 0, 5)

    again = lane.ack(1, 0, 5)

    assert (again.settled, again.late) == (0, 5)
    assert lane.ledger().acked == 5


def test_rows_given_back_untouched_are_ready_as_the_same_attempt() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)

    result = lane.give_back(1, 4, 12)

    assert (result.settled, result.late) == (6, 2)
    line = lane.ledger()
    assert (line.ready, line.in_flight, line.waiting_retry) == (6, 4, 0)
    assert lane.peek_returned(10) == [(4, 10, 1)]
    again = Lane(0)
    for change in (LaneEvent(PullKind.HANDED_OUT, ((0, 10, 1),), 1, SESSION), *result.changes):
        apply(again, change, now=0, waited_ms=0, grace_until=0)
    assert again.peek_returned(10) == [(4, 10, 1)]


def test_a_lease_past_its_deadline_comes_back_with_the_same_attempt() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10, until=100)

    assert lane.wake_at() == 100
    lane.tick(99)
    assert lane.ledger().in_flight == 10
    lane.tick(100)

    assert lane.ledger().ready == 10
    assert lane.peek_returned(10) == [(0, 10, 1)]


def test_a_late_ack_counts_when_nobody_else_has_the_row() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10, until=100)
    lane.tick(100)
    hand_out(lane, 2, 4)

    late = lane.ack(1, 0, 10)

    assert (late.settled, late.late) == (6, 4)
    assert lane.ledger().in_flight == 4


def test_a_late_ack_is_refused_in_an_ordered_group() -> None:
    """R6, design 5: the next one of its key may be out already."""
    lane = a_lane(10)
    hand_out(lane, 1, 10, until=100)
    lane.tick(100)

    late = lane.ack(1, 0, 10, strict=True)

    assert (late.settled, late.late) == (0, 10)
    assert lane.ledger().ready == 10


def test_a_retry_waits_and_comes_as_the_next_attempt() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)

    lane.retry(1, 3, 5, rule=RetryRule("fixed:5s", 0), now=1_000)
    assert lane.ledger().waiting_retry == 2
    lane.tick(5_999)
    assert lane.ledger().waiting_retry == 2
    lane.tick(6_000)

    assert lane.peek_returned(10) == [(3, 5, 2)]


def test_a_rejected_row_is_in_flight_until_its_copy_is_safe() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)

    moving = lane.begin_move(1, 2, 4)
    assert moving == [(2, 4, 1)]
    assert lane.ledger().in_flight == 10
    lane.moved(2, 4)

    assert (lane.ledger().dead, lane.ledger().in_flight) == (2, 8)


def test_a_rejected_row_whose_copy_failed_is_ready_again() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10)
    lane.begin_move(1, 2, 4)

    lane.move_failed(2, 4, due=500)
    assert (lane.ledger().waiting_retry, lane.ledger().dead) == (2, 0)
    lane.tick(500)

    assert lane.peek_returned(9) == [(2, 4, 1)]


def test_a_client_that_comes_back_keeps_its_lease_and_a_stranger_does_not_get_it() -> None:
    lane = a_lane(10)
    hand_out(lane, 1, 10, owner=7, until=60_000)

    lane.orphan(7, 5_000)
    assert lane.wake_at() == 5_000
    assert not lane.adopt(1, b"x" * 16, 8, 60_000)
    assert lane.adopt(1, SESSION, 8, 60_000)

    assert lane.renew(1, 8, 70_000)
    assert not lane.renew(1, 7, 70_000)


def test_a_cut_forgets_what_the_message_log_lost() -> None:
    lane = a_lane(100)
    hand_out(lane, 1, 80)
    lane.ack(1, 0, 60)

    lane.cut_to(50)
    lane.grow(70)

    line = lane.ledger()
    assert (line.acked, line.ready, line.in_flight) == (50, 20, 0)


def test_an_ack_whose_hand_out_was_lost_does_not_ack_what_lies_before() -> None:
    lane = Lane(0)

    apply(lane, LaneEvent(PullKind.ACKED, ((15, 18, 0),), 3), now=0, waited_ms=0, grace_until=0)
    lane.grow(20)

    assert (lane.ledger().acked, lane.ledger().ready) == (3, 17)


def test_a_storm_of_retries_comes_back_in_parts() -> None:
    """R5, design 5: a million rows that are due at once do not stop the loop for seconds."""
    lane = a_lane(3 * TICK_RANGES_MAX)
    hand_out(lane, 1, 3 * TICK_RANGES_MAX)
    for row in range(3 * TICK_RANGES_MAX):
        rule = RetryRule("default", 0, 1_000 + row % 2)
        lane.retry(1, row, row + 1, rule=rule, now=0)

    lane.tick(1_000)
    assert lane.ledger().ready == TICK_RANGES_MAX // 2, "of two thousand every second is due"
    for _ in range(2):
        lane.tick(1_001)
    assert lane.wake_at() == 1_000, "there is more to be brought back"
    while lane.wake_at() is not None:
        lane.tick(1_001)
    line = lane.ledger()
    assert (line.ready, line.waiting_retry) == (3 * TICK_RANGES_MAX, 0)


def test_rows_that_wait_again_for_longer_come_only_then() -> None:
    """An old reminder of a row says nothing about its new moment."""
    lane = a_lane(10)
    hand_out(lane, 1, 10)
    lane.retry(1, 0, 10, rule=RetryRule("fixed:1s", 0), now=0)
    lane.reschedule(RetryRule("fixed:10s", 0))
    lane.tick(5_000)
    assert lane.ledger().waiting_retry == 10
    lane.tick(10_000)
    assert lane.ledger().ready == 10
    hand_out(lane, 2, 10)
    lane.retry(2, 0, 10, rule=RetryRule("default", 0, 30), now=10_000)
    lane.tick(10_029)
    assert lane.ledger().waiting_retry == 10
    assert lane.wake_at() == 10_030
    lane.tick(10_030)
    assert lane.ledger().ready == 10


class LaneMachine(RuleBasedStateMachine):
    """Random steps on a lane, on a dictionary, and replayed from changes and snapshots."""

    @initialize(start=st.integers(0, 50))
    def begin(self, start: int) -> None:
        self.lane = Lane(start)
        self.rows: dict[int, str] = {}
        self.start, self.end = start, start
        self.now = 0
        self.lease = 0
        self.lease_at_reset = 0
        self.owners: dict[int, int] = {}
        self.changes: list[LaneEvent] = []
        self.resumed: bytes | None = None

    def log(self, changes: list[LaneEvent]) -> None:
        self.changes += changes

    def held(self) -> list[int]:
        return sorted(self.lane.leases)

    def row(self, data: st.DataObject) -> tuple[int, int]:
        first = data.draw(st.integers(self.start, max(self.start, self.end - 1)))
        return first, first + data.draw(st.integers(1, 12))

    @rule(rows=st.integers(1, 40))
    def store(self, rows: int) -> None:
        for row in range(self.end, self.end + rows):
            self.rows[row] = "ready"
        self.end += rows
        self.lane.grow(self.end)

    @precondition(lambda self: self.lane.ready() > 0)
    @rule(rows=st.integers(1, 30), owner=st.integers(1, 3))
    def pull(self, rows: int, owner: int) -> None:
        self.lease += 1
        change = hand_out(self.lane, self.lease, rows, owner=owner, until=self.now + 100)
        for first, end, _ in change.ranges:
            for row in range(first, end):
                assert self.rows[row] == "ready"
                self.rows[row] = f"lease {self.lease}"
        self.log([change])

    @precondition(lambda self: self.lane.next < self.lane.end)
    @rule(rows=st.integers(1, 30), step=st.integers(1, 4))
    def pull_filtered(self, rows: int, step: int) -> None:
        self.lease += 1
        first, end = self.lane.next, min(self.lane.end, self.lane.next + rows)
        fresh = [(row, row + 1) for row in range(first, end, step)]
        lease = Lease(self.lease, SESSION, 1, self.now + 100)
        for row in range(first, end):
            assert self.rows[row] == "ready"
            self.rows[row] = "filtered"
        for row, _ in fresh:
            self.rows[row] = f"lease {self.lease}"
        self.log(self.lane.hand_out_some(lease, [], fresh, end))

    @precondition(lambda self: self.lane.next < self.lane.end)
    @rule(rows=st.integers(1, 30))
    def pass_over(self, rows: int) -> None:
        first, end = self.lane.next, min(self.lane.end, self.lane.next + rows)
        for row in range(first, end):
            self.rows[row] = "filtered"
        self.log(self.lane.pass_over([(first, end)], end))

    @precondition(lambda self: self.lease > 0 and self.end > self.start)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        lease = data.draw(st.integers(1, self.lease))
        first, end = self.row(data)
        expected = 0
        beyond = self.lane.next
        for row in range(first, end):
            state = self.rows.get(row)
            free = state == "waiting" or (state == "ready" and row < beyond)
            if state == f"lease {lease}" or (free and lease > self.lease_at_reset):
                self.rows[row] = "acked"
                expected += 1
        result = self.lane.ack(lease, first, end)
        assert result.settled == expected
        self.log(result.changes)

    @precondition(lambda self: self.lane.leases)
    @rule(data=st.data(), after=st.integers(0, 50))
    def retry(self, data: st.DataObject, after: int) -> None:
        lease = data.draw(st.sampled_from(self.held()))
        first, end = self.row(data)
        for row in range(first, end):
            if self.rows.get(row) == f"lease {lease}":
                self.rows[row] = "waiting"
        rule = RetryRule("default", 0, after)
        self.log(self.lane.retry(lease, first, end, rule=rule, now=self.now).changes)
        self.settle_time()

    @precondition(lambda self: self.lane.leases)
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.held()))
        first, end = self.row(data)
        for row in range(first, end):
            if self.rows.get(row) == f"lease {lease}":
                self.rows[row] = "dead"
        for a, b, _ in self.lane.begin_move(lease, first, end):
            self.log(self.lane.moved(a, b))

    @rule(owner=st.integers(1, 3))
    def leave(self, owner: int) -> None:
        mine = [x.id for x in self.lane.leases.values() if x.owner == owner]
        for row, state in self.rows.items():
            if any(state == f"lease {lease}" for lease in mine):
                self.rows[row] = "ready"
        self.log(self.lane.release(owner))

    @rule(step=st.integers(1, 80))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.settle_time()

    def settle_time(self) -> None:
        self.log(self.lane.tick(self.now).changes)
        waiting = {r for a, b, _ in self.lane.waiting for r in range(a, b)}
        leased = {
            r: x.id for x in self.lane.leases.values() for a, b, _ in x.rows for r in range(a, b)
        }
        for row, state in self.rows.items():
            elsewhere = row in waiting or row in leased
            if state.startswith("lease") and row in waiting:
                self.rows[row] = "waiting"  # Its consumer vanished while it held nothing else.
            if (state == "waiting" or state.startswith("lease")) and not elsewhere:
                self.rows[row] = "ready"

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        target = data.draw(st.integers(max(0, self.start - 5), self.end))
        settled = {"acked", "dead", "skipped", "filtered"}
        beyond = any(r >= target and s in settled for r, s in self.rows.items())
        if beyond or target < self.start:
            self.lease_at_reset = self.lease
            skipped = sum(r < target and s not in settled for r, s in self.rows.items())
            self.start = target - skipped
            self.rows = dict.fromkeys(range(self.start, target), "skipped")
            self.rows |= dict.fromkeys(range(target, self.end), "ready")
        else:
            for row, state in self.rows.items():
                if row < target and state not in settled:
                    self.rows[row] = "skipped"
                elif state.startswith("lease"):
                    self.rows[row] = "ready"
        self.log([self.lane.reset(target)])

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(self.start, self.end))
        kinds = [self.rows[r] for r in range(self.start, end)]
        if any(kind in ("dead", "skipped", "filtered") for kind in self.rows.values()):
            return  # Which kind a lost row had is not kept; the sum is, see the invariant.
        self.rows = dict(zip(range(self.start, end), kinds, strict=True))
        old_end, self.end = self.end, end
        self.lane.cut_to(end)
        self.log([LaneEvent(PullKind.CUT, ((end, old_end, 0),))])

    @invariant()
    def every_row_is_in_the_place_the_dictionary_says(self) -> None:
        if not hasattr(self, "lane"):
            return
        line = self.lane.ledger()
        states = list(self.rows.values())
        assert line.total == len(states)
        assert line.ready == states.count("ready")
        assert line.in_flight == sum(s.startswith("lease") for s in states)
        assert line.waiting_retry == states.count("waiting")
        assert line.acked == states.count("acked")
        assert line.dead == states.count("dead")
        assert line.skipped == states.count("skipped")
        assert line.filtered == states.count("filtered")

    @invariant()
    def replaying_the_changes_gives_the_same_lane(self) -> None:
        if not hasattr(self, "lane"):
            return
        again = Lane(self.first_start())
        for change in self.changes:
            apply(again, change, now=self.now, waited_ms=0, grace_until=self.now + 5)
        again.grow(self.end)
        mine, theirs = self.lane.ledger(), again.ledger()
        assert (mine.acked, mine.dead, mine.skipped) == (theirs.acked, theirs.dead, theirs.skipped)
        assert mine.in_flight == theirs.in_flight
        assert mine.filtered == theirs.filtered
        assert mine.ready + mine.waiting_retry == theirs.ready + theirs.waiting_retry
        assert self.lane.poison.rows == again.poison.rows
        text = snapshot.save(
            self.lane, group="g", created_at_ms=0, now=self.now, settings=GroupSettings()
        )
        _, loaded = snapshot.load(text, now=self.now, waited_ms=0, grace_until=0)
        assert loaded.ledger() == mine
        assert loaded.poison.suspects == self.lane.poison.suspects

    def first_start(self) -> int:
        if not hasattr(self, "_first"):
            self._first = self.start
        return self._first


LaneMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TestLaneMachine(LaneMachine.TestCase):  # type: ignore[misc,valid-type]
    """Q4, D11: the delivery state machine against a plain dictionary model."""


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_consumers_share_a_backlog_and_none_is_skipped(seed: int) -> None:
    """Q5: joining and leaving at any moment loses nothing."""
    chance = random.Random(seed)
    lane = a_lane(1_000)
    seen: dict[int, int] = {}
    now, lease = 0, 0
    while lane.ledger().acked < 1_000:
        now += chance.randrange(30)
        lane.tick(now)
        if lane.ready() and chance.random() < 0.7:
            lease += 1
            change = hand_out(
                lane, lease, chance.randrange(1, 50), owner=chance.randrange(5), until=now + 40
            )
            for first, end, _ in change.ranges:
                for row in range(first, end):
                    seen[row] = seen.get(row, 0) + 1
        elif lane.leases:
            held = chance.choice(list(lane.leases.values()))
            if chance.random() < 0.2:
                lane.release(held.owner)
            else:
                for first, end, _ in list(held.rows):
                    lane.ack(held.id, first, end)

    assert sorted(seen) == list(range(1_000))
