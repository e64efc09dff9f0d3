"""The SEEK command: finds the sequence for a position (earliest, a time, so many bytes on, where a
group stands)."""

import asyncio
from collections.abc import Sequence

from ternmq.broker.delivery.group_position import GroupPositions, position
from ternmq.broker.topics import TopicNames
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry, Location
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import Seek, Sought

WEIGHED_ROWS_MAX = 200_000
"""Rows whose sizes one SEEK adds up."""


async def seek(
    consume: ConsumeLog, topics: TopicNames, request: Seek, groups: GroupPositions
) -> Sought:
    """The SEEK command."""
    topic = topics.get(request.topic)
    first, end = consume.bounds(topic.id)
    if request.group:
        lane = await groups.lane(topic, request.group)
        at, settled = position(lane, first, end)
        return Sought(sequence=at, first=first, end=end, group=request.group, settled=settled)
    sequence, size = await resolve(consume, topic.id, request.start), 0
    if request.size > 0:
        found = await asyncio.to_thread(
            consume.entries,
            topic.id,
            sequence,
            rows_max=WEIGHED_ROWS_MAX,
            size_max=request.size,
        )
        sequence, size = weighed(found, sequence)
    return Sought(sequence=sequence, first=first, end=end, size=size)


async def resolve(consume: ConsumeLog, topic_id: int, start: Start) -> int:
    """A place to start as a sequence that exists (or comes next)."""
    first, end = consume.bounds(topic_id)
    if start.at == "earliest":
        return first
    if start.at == "latest":
        return end
    if start.at == "time":
        found = consume.at_time_nowait(topic_id, start.value)
        if found is not None:
            return found
        return await asyncio.to_thread(consume.at_time, topic_id, start.value)
    return min(max(start.value, first), end)


def weighed(entries: Sequence[ConsumeEntry], sequence: int) -> tuple[int, int]:
    """The sequence after these batches, and their bytes from a sequence on; lost ones have none."""
    size = 0
    for entry in entries:
        end = entry.base_sequence + entry.count
        rows = end - max(sequence, entry.base_sequence)
        if entry.location != Location.LOST:
            size += max(1, entry.size * rows // entry.count)
        sequence = end
    return sequence, size
