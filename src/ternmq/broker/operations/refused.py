"""What people do with messages that were over a topic's limit and put aside (D10).

They lie in the hidden topic `%refused.TOPIC`, as the bytes that their producer sent. Sending them
goes into the topic itself, behind everything that is there, with their ids; no limit holds that
back, a person decided it. The copy is safe before the message counts as handled, so a crash in
between sends it twice rather than never.
"""

from functools import partial

from ternmq.broker.groups.groups import ConsumerGroup
from ternmq.broker.log.internal_producer import InternalProducer, copy_of
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import TopicNotFound
from ternmq.discovery.hidden_topics import refused_topic
from ternmq.wire.messages.dead_letters import DeadDone, DeadOpen, RefusedFind, RefusedHandle
from ternmq.wire.messages.topics import Topic


class RefusedAdmin:
    """The REFUSED commands."""

    def __init__(self, *, topics: TopicNames, desk: ReviewQueue, writer: InternalProducer) -> None:
        self._topics = topics
        self._desk = desk
        self._writer = writer

    async def open(self, request: RefusedFind) -> DeadOpen:
        """Which messages nobody has handled yet, as ranges of the hidden topic."""
        self._topics.get(request.topic)
        aside = self._topics.find(refused_topic(request.topic))
        if aside is None:
            return DeadOpen(ranges=[])
        lane = (await self._desk.of(aside)).lane
        return DeadOpen(ranges=lane.done.gaps(lane.start, lane.end), expired=lane.expired)

    async def delete(self, request: RefusedHandle) -> DeadDone:
        """Let messages go: they are handled, and nothing comes of them."""
        desk = await self._desk.of(self._aside(request.topic))
        return await self._desk.delete(desk, request.ranges)

    async def resend(self, request: RefusedHandle) -> DeadDone:
        """Put open messages into their topic."""
        topic = self._topics.get(request.topic)
        desk = await self._desk.of(self._aside(request.topic))
        return await self._desk.send(desk, request.ranges, partial(self._resend_one, topic, desk))

    def _aside(self, topic: str) -> Topic:
        aside = self._topics.find(refused_topic(topic))
        if aside is None:
            raise TopicNotFound(f"nothing of topic {topic!r} was put aside")
        return aside

    async def _resend_one(self, topic: Topic, desk: ConsumerGroup, sequence: int) -> None:
        entry, view = await self._writer.look(desk.topic_id, sequence)
        row = sequence - entry.base_sequence
        await self._writer.store(topic, [copy_of(view, row, {"%resent": 1})])
