"""Groups after a start: what must not be used twice."""

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane import Lane
from ternmq.testing import TurnedClock
from ternmq.wire.messages.groups import GroupSettings


def a_life(epoch: int) -> ConsumerGroups:
    """A start after which nothing of the lives before is known."""
    groups = ConsumerGroups(
        clock=TurnedClock(), record=lambda record, placed: None, on_settled=lambda group: None
    )
    groups.replay([], topics={}, grace_ms=0)
    groups.skip_forgotten(epoch)
    return groups


def test_a_lease_that_a_crash_made_us_forget_has_a_number_of_its_own() -> None:
    """Found by the cluster simulation: two consumers had the same lease, and the late verdict of
    one of them counted for the other one's rows."""
    group = ConsumerGroup(
        id=7, name="billing", topic_id=1, topic="orders", created_at_ms=0, lane=Lane(0)
    )

    given = [[a_life(epoch).new_lease(group)] for epoch in (1, 2, 3)]

    assert given == sorted(given)
    assert len({lease for life in given for lease in life}) == 3


def test_what_waits_for_a_retry_waits_by_a_changed_policy_also_after_a_start() -> None:
    group = ConsumerGroup(
        id=7, name="billing", topic_id=1, topic="orders", created_at_ms=0, lane=Lane(0)
    )
    group.settings = GroupSettings(retry="fixed:1s")
    group.lane.end = group.lane.next = 1
    group.lane.wait(0, 1, 2, 10_000 + 1_000, failed_at=10_000)

    group.replay_settings(GroupSettings(retry="fixed:1h"))

    [(_, _, wait)] = group.lane.waiting
    assert wait.due == 10_000 + 3_600_000
