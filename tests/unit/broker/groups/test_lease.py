"""Leases of no connection: they last as they were asked for, and only their key opens them."""

import pytest

from ternmq.broker.acks.settle import SettleMoment, settle
from ternmq.broker.groups import snapshot
from ternmq.broker.groups.groups import LEASE_GROUP_BITS
from ternmq.broker.groups.lane import OVERDUE, Lane, Lease, RetryRule
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.groups.lease import DETACHED, detached_ms, lock_of
from ternmq.broker.groups.replay import apply
from ternmq.core.errors import BadRequest
from ternmq.storage.pull.record import PullKind
from ternmq.wire.messages.groups import GroupSettings
from ternmq.wire.messages.pull import Done
from tests.unit.broker.group_builders import a_group

KEY = 12345
SESSION = b"s" * 16
MOMENT = SettleMoment(now=1_000, now_ms=lambda: 5, chance=0.0, given_out=lambda lease: True)
AT_MOST_2 = RetryRule("default", 2)


def hand_out(lane: Lane, rows: int, *, number: int = 1, until: int = 60_000) -> LaneEvent:
    lease = Lease(number, SESSION, DETACHED, until, since=0, lock=lock_of(KEY))
    again = lane.peek_returned(rows)
    return lane.hand_out(lease, again, lane.next if again else lane.next + rows)


def a_lane(rows: int = 10) -> Lane:
    lane = Lane(0)
    lane.grow(rows)
    return lane


def test_connections_and_sessions_do_not_touch_it() -> None:
    lane = a_lane()
    hand_out(lane, 10)

    lane.orphan(0, 5)
    lane.came_back(SESSION, 5)
    lane.release(1)

    assert not lane.adopt(1, SESSION, 7, 5) and not lane.renew(1, 7, 5)
    assert not lane.tick(59_999).changes
    assert lane.ledger().in_flight == 10


def test_rows_that_are_overdue_failed_and_come_again_at_once_or_die() -> None:
    lane = a_lane()
    hand_out(lane, 10)
    lane.ack_all(1, [(0, 4)], strict=True)

    first = lane.tick(60_000, AT_MOST_2)
    hand_out(lane, 10, number=2, until=120_000)
    second = lane.tick(120_000, AT_MOST_2)

    [change] = first.changes
    assert (change.kind, change.ranges, change.text) == (PullKind.RETRY, ((4, 10, 2),), OVERDUE)
    assert second.overdue == ((4, 10, 2),) and not second.moving
    assert not lane.leases and not len(lane.poison.suspects)


def test_rows_have_deadlines_of_their_own() -> None:
    lane = a_lane()
    hand_out(lane, 10)

    kept = lane.extend(1, 2, 5, now=0, kept_ms=90_000)
    shorter = lane.extend(1, 7, 8, now=0, kept_ms=1_000)
    beyond = lane.extend(1, 9, 12, now=0, kept_ms=60_000)
    over = lane.tick(1_000)
    rest = lane.tick(60_000)
    last = lane.tick(90_000)

    assert (kept.settled, shorter.settled, beyond.settled, beyond.late) == (3, 1, 1, 2)
    assert [change.ranges for change in over.changes] == [((7, 8, 2),)]
    assert [c.ranges[0][:2] for c in rest.changes] == [(0, 2), (5, 7), (8, 10)]
    assert [change.ranges for change in last.changes] == [((2, 5, 2),)]
    assert not lane.leases


def test_replay_and_snapshot_give_the_same_leases() -> None:
    lane = a_lane()
    events = [
        hand_out(lane, 6),
        *lane.extend(1, 2, 4, now=0, kept_ms=90_000).changes,
        *lane.ack_all(1, [(0, 1)], strict=True).changes,
    ]
    again = a_lane()
    for event in events:
        apply(again, event, now=100, waited_ms=100, grace_until=200)
    saved = snapshot.save(lane, group="g", created_at_ms=0, now=0, settings=GroupSettings())
    _, loaded = snapshot.load(saved, now=100, waited_ms=100, grace_until=200)

    for other in (again, loaded):
        lease = other.leases[1]
        assert lease.opens(KEY) and lease.owner == DETACHED
        assert list(lease.rows) == [(1, 6, 1)]
        assert (lease.deadline, lease.deadlines and lease.deadlines.get(3)) == (60_000, 90_000)
        assert other.ledger() == lane.ledger()


def test_after_a_start_it_is_kept_for_the_grace_at_least() -> None:
    lane = a_lane()
    event = hand_out(lane, 6, until=1_000)
    again = a_lane()

    apply(again, event, now=50_000, waited_ms=49_000, grace_until=55_000)

    assert again.leases[1].deadline == 55_000


def test_only_its_key_settles_it_and_what_is_late_is_named() -> None:
    group = a_group(10)
    lease = 1 << LEASE_GROUP_BITS | group.id
    hand_out(group.lane, 6, number=lease)
    rows = [Done(lease=lease, first=0, end=2), Done(lease=lease, first=3, end=4, kind="retry")]
    beyond = Done(lease=lease, first=5, end=8)

    by_consumer = settle([group], rows, MOMENT)
    wrong = settle([group], rows, MOMENT, {lease: KEY + 1})
    unnamed = settle([group], rows, MOMENT, {})
    right = settle([group], [*rows, beyond], MOMENT, {lease: KEY})
    twice = settle([group], rows, MOMENT, {lease: KEY})

    for refused in (by_consumer, wrong, unnamed):
        assert (refused.settled, refused.late) == (0, 3)
    assert wrong.late_rows == [(lease, 0, 2), (lease, 3, 4)]
    assert (right.settled, right.late, right.late_rows) == (4, 2, [(lease, 6, 8)])
    assert (twice.settled, twice.late_rows) == (0, [(lease, 0, 2), (lease, 3, 4)])


def test_a_late_ack_does_not_count_although_nobody_has_the_row() -> None:
    """What a gateway tells its callers: a late ack is refused."""
    group = a_group(4)
    lease = 1 << LEASE_GROUP_BITS | group.id
    hand_out(group.lane, 4, number=lease, until=500)
    group.lane.tick(500)

    late = settle([group], [Done(lease=lease, first=0, end=4)], MOMENT, {lease: KEY})

    assert (late.settled, late.late_rows) == (0, [(lease, 0, 4)])
    assert group.lane.ledger().acked == 0


@pytest.mark.parametrize("wanted", [0, -1, 12 * 3_600_000 + 1])
def test_its_length_is_bounded(wanted: int) -> None:
    with pytest.raises(BadRequest, match="lease_ms"):
        detached_ms(7, wanted)


def test_deadlines_fall_together_and_never_early() -> None:
    assert [7 + detached_ms(7, wanted) for wanted in (1, 93, 94)] == [100, 100, 200]
