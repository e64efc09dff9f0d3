"""Which rows of a key may go: what an `KeyOrder` makes of a lane that knows more than it does."""

from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lease import Lease
from ternmq.storage.consume.entry import ConsumeEntry


def test_a_row_that_is_out_already_is_not_handed_out_when_it_becomes_the_first_of_its_key() -> None:
    """Found by the cluster simulation. The group was not ordered when the rows went out, or a full
    disk kept the pull log from learning all that was done."""
    lane = Lane(0)
    lane.grow(3)
    lane.hand_out(Lease(1, b"a", 1, 1_000), [], 1)
    lane.hand_out(Lease(2, b"b", 2, 1_000), [], 2)
    order = KeyOrder(lane)
    entry = ConsumeEntry(0, 0, 100, 3, 0, tag_bloom=0, priority=0)
    order.learn(entry, ["k", "k", "k"], lane)

    order.apply(lane.ack(1, 0, 1).changes, lane)
    assert not order.ready

    order.apply(lane.ack(2, 1, 2).changes, lane)
    assert [sequence for sequence, _ in order.take(10)] == [2]
