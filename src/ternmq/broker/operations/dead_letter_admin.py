"""Dead and refused messages, as people handle them: list, send again, delete (R13, D10).

Two kinds are kept, each in a hidden topic. A dead letter goes, when it is sent again, into the
private lane of the group that it died in: no other group sees it, and it starts at attempt 1; the
letter says how often it was sent again (`%resent`). A message that was over its topic's limit and
put aside goes into the topic itself, behind everything that is there, with its id; no limit holds
that back, a person decided it.

What is open is the `ReviewQueue`'s to say. The copy is safe before the original counts as handled,
so a crash in between sends it twice rather than never.
"""

from functools import partial
from heapq import nsmallest

from ternmq.batch.encoder import Outgoing
from ternmq.batch.view import BatchView
from ternmq.broker.acks.dead_letters import ERROR_PROPERTIES
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.lane import Lane
from ternmq.broker.limits.slices import Slices
from ternmq.broker.log.internal_producer import InternalProducer, copy_of, properties_of
from ternmq.broker.operations.review_queue import ReviewQueue
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import DEAD_PREFIX, dead_topic, refused_topic
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.wire.messages.dead_letters import (
    DeadDone,
    DeadFind,
    DeadGroup,
    DeadGroups,
    DeadGroupsFind,
    DeadHandle,
    DeadOpen,
    RefusedFind,
    RefusedHandle,
)
from ternmq.wire.messages.topics import Topic

LETTER = "%letter"
"""Of a letter that was sent again: its sequence in the dead-letter topic."""
DEATH_PROPERTIES = frozenset(
    {"%sequence", "%attempt", "%reason", "%died_at", LETTER, *ERROR_PROPERTIES}
)
GROUPS_PAGE_MAX = 1_000


class DeadLetterCommands:
    """The DEAD commands."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        consumers: Consumers,
        review_queue: ReviewQueue,
        internal_producer: InternalProducer,
        consume: ConsumeLog,
    ) -> None:
        self._consume = consume
        self._slices = Slices()
        self._topics = topics
        self._consumers = consumers
        self._review_queue = review_queue
        self._internal_producer = internal_producer

    async def open(self, request: DeadFind) -> DeadOpen:
        """Which letters nobody has handled yet, as ranges of the dead-letter topic."""
        check_name("group", request.group)
        if self._topics.find(dead_topic(request.group)) is None:
            return DeadOpen(ranges=[], open=0)
        lane = (await self._reviewed(request.group)).lane
        return open_letters(lane, request.newest)

    async def groups(self, request: DeadGroupsFind) -> DeadGroups:
        """Groups that have dead letters, by name, a page of them."""
        if not 0 < request.limit <= GROUPS_PAGE_MAX:
            raise BadRequest(f"limit is {request.limit}; it can be 1 to {GROUPS_PAGE_MAX}")
        after = dead_topic(request.after)
        found = nsmallest(
            request.limit + 1,
            (
                each
                for each in self._topics.all()
                if each.name.startswith(DEAD_PREFIX) and each.name > after
            ),
            key=lambda topic: topic.name,
        )
        groups = await self._slices.make(found[: request.limit], self._counted)
        more = len(found) > request.limit
        return DeadGroups(groups=groups, following=groups[-1].group if more else "")

    def _counted(self, topic: Topic) -> DeadGroup:
        first, end = bounds = self._consume.bounds(topic.id)
        return DeadGroup(
            group=topic.name.removeprefix(DEAD_PREFIX),
            open=self._review_queue.open_rows(topic, bounds),
            stored=end - first,
        )

    async def delete(self, request: DeadHandle) -> DeadDone:
        """Let letters go: they are handled, and nothing comes of them."""
        return await self._review_queue.delete(await self._reviewed(request.group), request.ranges)

    async def resend(self, request: DeadHandle) -> DeadDone:
        """Send open letters again, each to the lane of the topic it came from."""
        reviewed = await self._reviewed(request.group)
        send_one = partial(self._resend_one, request.group, reviewed)
        return await self._review_queue.send(reviewed, request.ranges, send_one)

    async def _reviewed(self, group: str) -> ConsumerGroup:
        topic = self._topics.find(dead_topic(group))
        if topic is None:
            raise TopicNotFound(f"group {group!r} has no dead letters")
        return await self._review_queue.of(topic)

    async def _resend_one(self, group: str, reviewed: ConsumerGroup, sequence: int) -> None:
        entry, view = await self._internal_producer.look(reviewed.topic_id, sequence)
        row = sequence - entry.base_sequence
        name = str(properties_of(view, row).get("%topic", ""))
        original = self._topics.find(name)
        if original is None:
            raise TopicNotFound(f"topic {name!r}, where it came from, does not exist any more")
        lane_topic = await self._consumers.open_lane(original, group)
        await self._internal_producer.store(lane_topic, [_copy(view, row, sequence)])


def open_letters(lane: Lane, newest: int) -> DeadOpen:
    """Letters that nobody has handled, all or the newest: of a million of which every second one
    is handled, finding a page must not take longer than the page is long."""
    first, span = lane.start, newest
    if newest > 0:
        first = max(lane.start, lane.end - span)
        while first > lane.start and lane.end - first - _done(lane, first) < newest:
            span *= 2
            first = max(lane.start, lane.end - span)
    ranges = lane.done.gaps(first, lane.end)
    if newest > 0:
        ranges = _last(ranges, newest)
    is_open = lane.end - lane.start - lane.done.count
    return DeadOpen(ranges=ranges, expired=lane.expired, open=is_open)


def _done(lane: Lane, first: int) -> int:
    return sum(b - a for a, b in lane.done.overlap(first, lane.end))


def _last(ranges: list[tuple[int, int]], rows: int) -> list[tuple[int, int]]:
    """The last rows of ranges."""
    kept: list[tuple[int, int]] = []
    for first, end in reversed(ranges):
        if rows <= 0:
            break
        kept.append((max(first, end - rows), end))
        rows -= end - first
    return kept[::-1]


class RefusedCommands:
    """The REFUSED commands."""

    def __init__(
        self, *, topics: TopicNames, review_queue: ReviewQueue, internal_producer: InternalProducer
    ) -> None:
        self._topics = topics
        self._review_queue = review_queue
        self._internal_producer = internal_producer

    async def open(self, request: RefusedFind) -> DeadOpen:
        """Which messages nobody has handled yet, as ranges of the hidden topic."""
        self._topics.get(request.topic)
        aside = self._topics.find(refused_topic(request.topic))
        if aside is None:
            return DeadOpen(ranges=[], open=0)
        lane = (await self._review_queue.of(aside)).lane
        return open_letters(lane, request.newest)

    async def delete(self, request: RefusedHandle) -> DeadDone:
        """Let messages go: they are handled, and nothing comes of them."""
        reviewed = await self._review_queue.of(self._aside(request.topic))
        return await self._review_queue.delete(reviewed, request.ranges)

    async def resend(self, request: RefusedHandle) -> DeadDone:
        """Put open messages into their topic."""
        topic = self._topics.get(request.topic)
        reviewed = await self._review_queue.of(self._aside(request.topic))
        return await self._review_queue.send(
            reviewed, request.ranges, partial(self._resend_one, topic, reviewed)
        )

    def _aside(self, topic: str) -> Topic:
        aside = self._topics.find(refused_topic(topic))
        if aside is None:
            raise TopicNotFound(f"nothing of topic {topic!r} was put aside")
        return aside

    async def _resend_one(self, topic: Topic, reviewed: ConsumerGroup, sequence: int) -> None:
        entry, view = await self._internal_producer.look(reviewed.topic_id, sequence)
        row = sequence - entry.base_sequence
        await self._internal_producer.store(topic, [copy_of(view, row, {"%resent": 1})])


def _copy(view: BatchView, row: int, letter: int) -> Outgoing:
    """The message as it was before it died; it says that it was sent again, from which letter."""
    resent = properties_of(view, row).get("%resent", 0)
    copy = copy_of(view, row, {"%resent": (resent if isinstance(resent, int) else 0) + 1})
    properties = copy.properties or {}
    copy.properties = {
        name: properties[name] for name in properties if name not in DEATH_PROPERTIES
    } | {LETTER: letter}
    return copy
