"""What acks, retries and rejects do to rows, decided without a broker; and what follows then."""

from typing import Any, cast

import pytest

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.settle import (
    DeadRows,
    SettleMoment,
    SettleResult,
    check_outcomes,
    settle,
)
from ternmq.broker.groups.consumer_group import ConsumerGroup, ConsumerSession
from ternmq.broker.groups.failure_notes import pack_failure
from ternmq.broker.groups.groups import LEASE_GROUP_BITS
from ternmq.core.errors import ProtocolError, Unavailable
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.wire.messages.pull import Done
from tests.unit.broker.group_builders import a_consumer, a_group, hand_out, some_groups

NOW, NOW_MS = 500, 1_700_000_000_000
MOMENT = SettleMoment(NOW, lambda: NOW_MS, 0.5, lambda lease: lease >> LEASE_GROUP_BITS <= 9)


def settled(consumer: ConsumerSession, *done: Done) -> SettleResult:
    found = settle(consumer.groups, done, MOMENT)
    for group in consumer.groups:
        group.lane.ledger()
    return found


def kinds(found: SettleResult, group: ConsumerGroup) -> list[PullKind]:
    return [event.kind for event in found.events.get(group, [])]


def test_acks_of_one_lease_that_follow_each_other_are_one_event() -> None:
    group = a_group()
    lease = hand_out(group, 10)

    found = settled(a_consumer(group), *(Done(lease=lease, first=n, end=n + 1) for n in (0, 1, 5)))

    assert (found.settled, found.late) == (3, 0)
    [event] = found.events[group]
    assert event.kind is PullKind.ACKED
    assert event.ranges == ((0, 1, 0), (1, 2, 0), (5, 6, 0))
    assert group.lane.done.count == 3
    assert not found.touched, "nothing became ready"


def test_what_another_group_or_nobody_was_given_is_late() -> None:
    group, gone = a_group(), a_group(number=6)
    lease, other = hand_out(group, 10), hand_out(gone, 10)
    gone.deleted = True
    unknown, made_up = 1 << LEASE_GROUP_BITS | 77, 99 << LEASE_GROUP_BITS | group.id

    found = settled(
        a_consumer(group, gone),
        Done(lease=lease, first=8, end=12),
        *(Done(lease=which, first=0, end=3) for which in (other, unknown, made_up)),
    )

    assert (found.settled, found.late) == (2, 2 + 9)
    assert group.lane.done.count == 2


def test_an_ordered_group_is_told_which_outcomes_came_late() -> None:
    """There they never count, so a consumer that waits for its ack has to hear of it."""
    group = a_group(ordered=True)
    lease = hand_out(group, 10)
    group.lane.give_back(lease, 2, 4)

    found = settled(
        a_consumer(group),
        Done(lease=lease, first=0, end=6),
        Done(lease=lease, first=2, end=3, kind="retry"),
        Done(lease=lease, first=3, end=4, kind="reject"),
        Done(lease=lease, first=6, end=7, kind="reject"),
    )

    assert (found.settled, found.late) == (5, 4)
    assert found.late_rows == [(lease, 2, 4), (lease, 2, 3), (lease, 3, 4)]


def test_elsewhere_a_late_ack_may_count_and_nobody_is_told() -> None:
    group = a_group()
    lease = hand_out(group, 10)
    group.lane.give_back(lease, 2, 4)

    found = settled(a_consumer(group), Done(lease=lease, first=0, end=6))

    assert found.late_rows == []


def test_every_group_is_told_which_rejects_came_late() -> None:
    """Who awaits a reject looks for a dead letter afterwards."""
    group = a_group()
    lease = hand_out(group, 10)
    group.lane.give_back(lease, 2, 4)

    found = settled(
        a_consumer(group),
        Done(lease=lease, first=0, end=6, kind="reject"),
        Done(lease=lease + (1 << 40), first=8, end=9, kind="reject"),
    )

    assert (found.settled, found.late) == (4, 3)
    assert found.late_rows == [(lease, 2, 4), (lease + (1 << 40), 8, 9)]


def test_a_retry_waits_by_the_policy_and_says_why() -> None:
    group = a_group(retry="fixed:2s", attempts_max=3)
    lease = hand_out(group, 10)
    error = ("ValueError", "no such customer", "")

    found = settled(a_consumer(group), Done(lease=lease, first=0, end=4, kind="retry", error=error))

    assert kinds(found, group) == [PullKind.RETRY]
    assert found.events[group][0].text == pack_failure(*error)
    assert found.touched == {group.id: group}, "its next moment is another"
    assert group.lane.wake_at() == min(1_000, NOW + 2_000)
    assert [wait.due for _, _, wait in group.lane.waiting] == [NOW + 2_000]
    assert found.moving == []


def test_the_last_attempt_moves_to_the_dead_letters_with_its_reason() -> None:
    group = a_group(attempts_max=2)
    lease = hand_out(group, 3, attempt=2)

    found = settled(
        a_consumer(group), Done(lease=lease, first=0, end=2, kind="retry", reason="no stock")
    )

    [dead] = found.moving
    assert dead.pieces == [(0, 2, 2)]
    assert dead.reason == "failed 2 times: no stock"
    assert kinds(found, group) == [], "nothing is written before the copies are safe"
    assert group.lane.moving.count == 2
    assert found.settled == 2


def test_a_reject_moves_rows_that_are_held_and_no_others() -> None:
    group = a_group()
    lease = hand_out(group, 5)

    found = settled(
        a_consumer(group), Done(lease=lease, first=3, end=9, kind="reject", reason="broken")
    )

    assert (found.settled, found.late) == (2, 4)
    assert [(dead.pieces, dead.reason) for dead in found.moving] == [([(3, 5, 1)], "broken")]
    assert found.events == {}


def test_rows_that_are_given_back_are_ready_as_the_same_attempt() -> None:
    group = a_group(end=5)
    lease = hand_out(group, 5)

    found = settled(a_consumer(group), Done(lease=lease, first=1, end=4, kind="back"))

    assert kinds(found, group) == [PullKind.RETURNED]
    assert list(group.lane.returned) == [(1, 4, 1)]
    assert found.touched == {group.id: group}


def test_an_ordered_group_goes_on_and_refuses_acks_of_lost_leases() -> None:
    group = a_group(end=5, ordered=True)
    lease = hand_out(group, 5)
    consumer = a_consumer(group)

    assert settled(consumer, Done(lease=lease, first=0, end=1)).touched == {group.id: group}
    group.lane.release(None)
    assert settled(consumer, Done(lease=lease, first=1, end=2)).late == 1


def test_a_group_that_was_full_is_freed() -> None:
    group = a_group()
    lease = hand_out(group, 5)
    group.full = True

    assert settled(a_consumer(group), Done(lease=lease, first=0, end=1)).freed == [group]


@pytest.mark.parametrize(
    ("lease", "first", "end"), [(0, 0, 1), (1, 1, 1), (1, -1, 2), (1, 0, 2**63)]
)
def test_nonsense_is_refused_before_anything_is_done(lease: int, first: int, end: int) -> None:
    with pytest.raises(ProtocolError):
        check_outcomes([Done(lease=1, first=0, end=1), Done(lease=lease, first=first, end=end)])


class Around:
    """What stands around an `AckHandler`: feeds are noted, moves succeed or fail."""

    def __init__(self, failure: Unavailable | None = None) -> None:
        self.fed: list[ConsumerGroup] = []
        self.moved: list[DeadRows] = []
        self._failure = failure

    def feed(self, group: ConsumerGroup) -> None:
        self.fed.append(group)

    async def move(self, dead: DeadRows) -> None:
        self.moved.append(dead)
        if self._failure is not None:
            raise self._failure


def a_handler(group: ConsumerGroup, around: Around) -> tuple[AckHandler, list[PullRecord]]:
    groups, written = some_groups(group)
    groups.skip_forgotten(1)
    handler = AckHandler(
        groups=groups,
        pull_handler=cast(Any, around),
        dead_letters=cast(Any, around),
        stuck_requests=StuckRequests(lambda: None),
    )
    return handler, written


async def test_what_is_settled_is_written_once_and_a_reject_is_moved() -> None:
    group, around = a_group(ordered=True), Around()
    handler, written = a_handler(group, around)
    lease = hand_out(group, 6)

    handler.settle(
        a_consumer(group),
        [
            Done(lease=lease, first=0, end=1),
            Done(lease=lease, first=1, end=2, kind="reject", reason="broken"),
            Done(lease=lease, first=2, end=4),
        ],
    )
    await handler.finish()

    [record] = written
    assert [(record.kind, record.ranges)] == [(PullKind.ACKED, ((0, 1, 0), (2, 4, 0)))]
    assert [dead.pieces for dead in around.moved] == [[(1, 2, 1)]]
    assert around.fed == [group], "the next of its key may go"


async def test_a_move_that_fails_is_told_to_who_asked_for_it() -> None:
    group, around = a_group(), Around(Unavailable("no disk"))
    handler, _ = a_handler(group, around)
    lease = hand_out(group, 6)

    pieces = group.lane.begin_move(lease, 0, 2)
    with pytest.raises(Unavailable, match="no disk"):
        await handler.move([DeadRows(group, pieces, "skipped")])
