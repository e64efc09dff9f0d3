"""What people do with dead letters: see which are open, send them again, let them go (R13, D10).

A dead letter is open until somebody handled it; what is handled is kept as the progress of a group
of our own on the dead-letter topic. Sending again goes into the private lane of the group that the
letter died in: no other group sees it, and it starts at attempt 1. The copy is safe before the
letter counts as handled, so a crash in between sends it twice rather than never; the letter then
says how often it was sent again (`%resent`).
"""

from functools import partial

from ternmq.batch.encoder import Outgoing
from ternmq.batch.view import BatchView
from ternmq.broker.acks.dead_letters import ERROR_NOTES
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.groups import ConsumerGroup
from ternmq.broker.log.internal_producer import InternalProducer, copy_of
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import TopicNotFound
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import dead_topic
from ternmq.wire.messages.dead_letters import DeadDone, DeadFind, DeadHandle, DeadOpen

DEATH_NOTES = frozenset({"%sequence", "%attempt", "%reason", "%died_at", *ERROR_NOTES})


class DeadLetterAdmin:
    """The DEAD commands."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        members: Consumers,
        desk: ReviewQueue,
        writer: InternalProducer,
    ) -> None:
        self._topics = topics
        self._members = members
        self._desk = desk
        self._writer = writer

    async def open(self, request: DeadFind) -> DeadOpen:
        """Which letters nobody has handled yet, as ranges of the dead-letter topic."""
        check_name("group", request.group)
        if self._topics.find(dead_topic(request.group)) is None:
            return DeadOpen(ranges=[])
        lane = (await self._desk_of(request.group)).lane
        return DeadOpen(ranges=lane.done.gaps(lane.start, lane.end), expired=lane.expired)

    async def delete(self, request: DeadHandle) -> DeadDone:
        """Let letters go: they are handled, and nothing comes of them."""
        return await self._desk.delete(await self._desk_of(request.group), request.ranges)

    async def resend(self, request: DeadHandle) -> DeadDone:
        """Send open letters again, each to the lane of the topic it came from."""
        desk = await self._desk_of(request.group)
        send_one = partial(self._resend_one, request.group, desk)
        return await self._desk.send(desk, request.ranges, send_one)

    async def _desk_of(self, group: str) -> ConsumerGroup:
        topic = self._topics.find(dead_topic(group))
        if topic is None:
            raise TopicNotFound(f"group {group!r} has no dead letters")
        return await self._desk.of(topic)

    async def _resend_one(self, group: str, desk: ConsumerGroup, sequence: int) -> None:
        entry, view = await self._writer.look(desk.topic_id, sequence)
        row = sequence - entry.base_sequence
        name = str(view.properties(row).get("%topic", ""))
        original = self._topics.find(name)
        if original is None:
            raise TopicNotFound(f"topic {name!r}, where it came from, does not exist any more")
        lane_topic = await self._members.open_lane(original, group)
        await self._writer.store(lane_topic, [_copy(view, row)])


def _copy(view: BatchView, row: int) -> Outgoing:
    """The message as it was before it died; it says that it was sent again."""
    resent = view.properties(row).get("%resent", 0)
    copy = copy_of(view, row, {"%resent": (resent if isinstance(resent, int) else 0) + 1})
    properties = copy.properties or {}
    copy.properties = {name: properties[name] for name in properties if name not in DEATH_NOTES}
    return copy
