"""DEAD_RECALL: letters that were sent again by mistake are taken back while nobody was handed them.

A letter that is sent again lies in the private lane of its group, and says in `%letter` which one
it was. While it is ready there it can become a dead letter once more, with the reason and the error
that it had: it is held, its copy becomes safe, and only then the row is settled, exactly as any row
dies (`acks/dead_letters.py`). A crash in between leaves it in both places rather than in none. What
a consumer has in hand, or had, is left alone.
"""

import asyncio

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.dead_letters import ERROR_PROPERTIES
from ternmq.broker.acks.settle import DeadRows
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import pack_failure
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane import NO_REASON, Why
from ternmq.broker.log.internal_producer import InternalProducer, properties_of
from ternmq.broker.operations.dead_letter_admin import LETTER
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.range_set import RangeSet
from ternmq.discovery.hidden_topics import dead_topic, lane_topic
from ternmq.wire.messages.dead_letters import DeadRecall, DeadRecalled

ROWS_AT_ONCE = 500
"""Rows that one request looks at."""
RANGES_MAX = 10_000
REST_AFTER = 20
"""Batches after which others get the loop."""
TAKEN_BACK = "taken back"


class DeadLetterRecall:
    """The DEAD_RECALL command."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        groups: ConsumerGroups,
        internal_producer: InternalProducer,
        ack_handler: AckHandler,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._internal_producer = internal_producer
        self._ack_handler = ack_handler

    async def recall(self, request: DeadRecall) -> DeadRecalled:
        if len(request.ranges) > RANGES_MAX:
            raise BadRequest(f"name at most {RANGES_MAX} ranges of letters at once")
        group = self._private(request.topic, request.group)
        if group is None:
            return DeadRecalled(taken=0)
        wanted = RangeSet(request.ranges) if request.ranges else None
        first = max(request.after, group.lane.done.first_gap(group.lane.start))
        end = min(group.lane.end, first + ROWS_AT_ONCE)
        found = await self._find(request.group, group, (first, end), wanted)
        # From here on without a pause: what is held has to be moved.
        deaths = [
            DeadRows(group, pieces, reason, why)
            for sequence, reason, why in found
            if (pieces := group.lane.call_back(sequence, sequence + 1))
        ]
        if deaths:
            await self._ack_handler.move(deaths)
        return DeadRecalled(taken=len(deaths), following=end if end < group.lane.end else 0)

    def _private(self, topic: str, group: str) -> ConsumerGroup | None:
        original = self._topics.get(topic)
        lane = self._topics.find(lane_topic(original.id, group))
        return self._groups.find(lane.id, group) if lane is not None else None

    async def _find(
        self, name: str, group: ConsumerGroup, rows: tuple[int, int], wanted: RangeSet | None
    ) -> list[tuple[int, str, Why]]:
        """Which of these rows were letters that are wanted, and why those had died."""
        found: list[tuple[int, str, Why]] = []
        at, end = rows
        steps = 0
        while at < end:
            steps += 1
            if steps % REST_AFTER == 0:
                await asyncio.sleep(0)
            try:
                entry, view = await self._internal_producer.look(group.topic_id, at)
            except TernError:
                at += 1  # Nobody will be handed that either.
                continue
            stop = min(end, entry.base_sequence + entry.count)
            for sequence in range(at, stop):
                letter = properties_of(view, sequence - entry.base_sequence).get(LETTER)
                if isinstance(letter, int) and (wanted is None or letter in wanted):
                    found.append((sequence, *await self._why(name, letter)))
            at = stop
        return found

    async def _why(self, group: str, letter: int) -> tuple[str, Why]:
        """The reason and the error of the letter that it was."""
        topic = self._topics.find(dead_topic(group))
        if topic is None:
            return TAKEN_BACK, NO_REASON
        try:
            entry, view = await self._internal_producer.look(topic.id, letter)
        except TernError:
            return TAKEN_BACK, NO_REASON  # Not kept any more.
        notes = properties_of(view, letter - entry.base_sequence)
        kind, text, traceback, at_ms = (notes.get(name) for name in ERROR_PROPERTIES)
        if not isinstance(at_ms, int):
            return str(notes.get("%reason", TAKEN_BACK)), NO_REASON
        why = Why(pack_failure(str(kind), str(text), str(traceback)), at_ms)
        return str(notes.get("%reason", TAKEN_BACK)), why
