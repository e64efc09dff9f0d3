"""Consumer groups and consumers without a broker around them."""

from typing import Any, cast

from ternmq.broker.groups.consumer_group import ClientState, ConsumerGroup, ConsumerSession
from ternmq.broker.groups.groups import LEASE_GROUP_BITS, ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lease import Lease
from ternmq.storage.pull.record import PullRecord
from ternmq.testing import TurnedClock
from ternmq.wire.messages.groups import GroupSettings

TOPIC_ID = 3
SESSION = b"s" * 16


def a_group(
    end: int = 100, *, number: int = 5, ordered: bool = False, **settings: Any
) -> ConsumerGroup:
    """A group whose topic has rows 0 up to `end`."""
    lane = Lane(0)
    lane.grow(end)
    group = ConsumerGroup(number, f"group-{number}", TOPIC_ID, "orders", 0, lane)
    group.settings = GroupSettings(**settings)
    if ordered:
        group.order = KeyOrder(lane)
    return group


def a_consumer(*groups: ConsumerGroup) -> ConsumerSession:
    client = ClientState()
    consumer = ConsumerSession(1, cast(Any, None), client, SESSION, 0, groups=list(groups))
    client.consumers[consumer.id] = consumer
    for group in groups:
        group.consumers[consumer.id] = consumer
    return consumer


def some_groups(*groups: ConsumerGroup) -> tuple[ConsumerGroups, list[PullRecord]]:
    """The groups of a broker, and the records that are written."""
    written: list[PullRecord] = []
    known = ConsumerGroups(
        clock=TurnedClock(),
        record=lambda record, placed: written.append(record),
        on_settled=lambda group: None,
    )
    for group in groups:
        known.add(group)
    return known, written


def hand_out(group: ConsumerGroup, end: int, *, number: int = 1, attempt: int = 1) -> int:
    """Lease all new rows up to `end`; returns the lease."""
    lease = Lease(number << LEASE_GROUP_BITS | group.id, SESSION, 1, 1_000)
    first = group.lane.next
    if attempt > 1:
        group.lane.look_ahead(end)
        group.lane.returned.put(first, end, attempt)
        group.lane.hand_out(lease, [(first, end, attempt)], end)
    else:
        group.lane.hand_out(lease, [], end)
    return lease.id
