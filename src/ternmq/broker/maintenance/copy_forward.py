"""Copies messages that groups still need before retention removes them (R16).

Before rows leave a topic, because their segment is removed or their time is over, every group is
asked. What was handed out and is not settled (in flight, waiting for a retry, come back) is copied
into the group's private lane, with its id, at attempt 1; in the topic's lane it counts as expired.
What was never handed out is expired. The copies are safe before the originals are marked, and all
of it is safe before anything goes: a crash in between hands out twice, never not at all.
"""

from ternmq.batch.encoder import Outgoing
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Piece
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.internal_producer import InternalProducer, copy_of, properties_of
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import RESERVED
from ternmq.wire.messages.topics import Topic

log = get_logger()

COPIES_MAX = 100_000  # Of one group, in one go; beyond, rows are expired and said so.
ROWS_AT_ONCE = 256


class CopyForward:
    """Copies what groups still need before messages go; expires the rest."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        consumers: Consumers,
        committer: Committer,
        internal_producer: InternalProducer,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._consumers = consumers
        self._committer = committer
        self._internal_producer = internal_producer

    def needed_by(self, firsts: dict[int, int]) -> ConsumerGroup | None:
        """A group that has unsettled rows below these sequences, if any has."""
        for group, _ in self._concerned(firsts):
            if not group.name.startswith(RESERVED):
                return group
        return None

    def in_flight(self, firsts: dict[int, int]) -> bool:
        """Are rows below these sequences with consumers, or on their way to the dead letters?"""
        return any(group.lane.in_flight_below(first) for group, first in self._concerned(firsts))

    async def leave(self, firsts: dict[int, int]) -> None:
        """Safe when this returns: no group needs anything below these sequences."""
        for group, first in self._concerned(firsts):
            await self._leave(group, first)

    def _concerned(self, firsts: dict[int, int]) -> list[tuple[ConsumerGroup, int]]:
        return [
            (group, first)
            for topic_id, first in firsts.items()
            for group in list(self._groups.of_topic(topic_id))
            if group.lane.unsettled_below(first)
        ]

    async def _leave(self, group: ConsumerGroup, first: int) -> None:
        lane = group.lane
        copied = 0
        if not group.name.startswith(RESERVED):  # Nobody's messages: handled dead letters and such.
            pieces = lane.call_in(first, COPIES_MAX)
            if pieces and group.order is not None:
                group.order = KeyOrder(lane)
            copied = await self._copy(group, pieces)
        changes = lane.give_up(first)
        expired = sum(end - begin for change in changes for begin, end, _ in change.ranges)
        await self._decide(group, changes)
        log.warning(
            "messages leave before they were handled",
            topic=group.topic,
            group=group.name,
            upto=first,
            copied=copied,
            expired=expired,
        )

    async def _copy(self, group: ConsumerGroup, pieces: list[Piece]) -> int:
        """Into the private lane; what cannot be copied is expired with the rest."""
        if not pieces:
            return 0
        copied = 0
        lane_topic: Topic | None = None
        for first, end, _ in pieces:
            for at in range(first, end, ROWS_AT_ONCE):
                stop = min(end, at + ROWS_AT_ONCE)
                try:
                    lane_topic = lane_topic or await self._lane_of(group)
                    messages = await self._copies_of(group, at, stop)
                    await self._internal_producer.store_rows(lane_topic, messages)
                    copied += len(messages)
                except TernError as error:
                    log.error(
                        "messages could not be copied forward",
                        topic=group.topic,
                        group=group.name,
                        first=at,
                        end=stop,
                        reason=error.message,
                    )
                await self._decide(group, group.lane.moved(at, stop, expired=True))
        return copied

    async def _lane_of(self, group: ConsumerGroup) -> Topic:
        topic = self._topics.get(group.topic)
        return topic if group.beside else await self._consumers.open_lane(topic, group.name)

    async def _copies_of(self, group: ConsumerGroup, at: int, end: int) -> list[Outgoing]:
        messages: list[Outgoing] = []
        while at < end:
            try:
                entry, view = await self._internal_producer.look(group.topic_id, at)
            except Corrupt as error:
                log.error("a message is gone", sequence=at, reason=error.message)
                at += 1
                continue
            base = entry.base_sequence
            stop = min(end, base + entry.count)
            for row in range(at - base, stop - base):
                topic = properties_of(view, row).get("%topic", group.topic)
                messages.append(copy_of(view, row, {"%topic": topic}))
            at = stop
        return messages

    async def _decide(self, group: ConsumerGroup, changes: list[LaneEvent]) -> None:
        if not changes:
            return
        if group.order is not None:
            group.order.apply(changes, group.lane)
        await self._committer.decide([self._groups.to_record(group, one) for one in changes])
