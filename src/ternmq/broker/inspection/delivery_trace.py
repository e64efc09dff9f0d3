"""TRACE: everything that the pull log says of one message, while the log has it (R23).

The log is gone through in parts, each by a reader thread, one at a time however many ask, and each
bounded by what was asked for: a client that wants more asks again. Whose session it was is known
while that client is connected. Says only what is safe; the newest steps are in ROW_STATE. Changes
nothing.
"""

import asyncio
from dataclasses import replace
from typing import NamedTuple

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import failure_line, read_failure
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane_event import BY_POLICY
from ternmq.broker.inspection.message_states import holder_of_session, lane_name
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest
from ternmq.core.units import KIB, MIB
from ternmq.storage.pull.page import PullRow
from ternmq.storage.pull.pull_log import PullLog
from ternmq.storage.pull.record import PullFormat, PullKind, PullRecord, decode
from ternmq.wire.inspection.rows import Holder
from ternmq.wire.inspection.trace import TraceEvent, TraceFind, TracePage

SIZE_MIN = 64 * KIB
SIZE_MAX = 16 * MIB
EVENTS_MAX = 10_000
"""Of one answer: an answer has to fit into a frame."""
COMES_AGAIN = frozenset({PullKind.RETRY, PullKind.KILLED})
FAILED = COMES_AGAIN | {PullKind.STOPPED}


class TraceStep(NamedTuple):
    """A record without the ranges of others."""

    record: PullRecord
    attempt: int


class TraceRead(NamedTuple):
    """What one look through a part of the log found."""

    steps: list[TraceStep]
    following: int
    end: int
    kept_since_ms: int


class DeliveryTrace:
    """The TRACE command."""

    def __init__(
        self, *, pulls: PullLog, groups: ConsumerGroups, topics: TopicNames, fetcher: Fetcher
    ) -> None:
        self._pulls = pulls
        self._groups = groups
        self._topics = topics
        self._fetcher = fetcher
        self._turn = asyncio.Lock()

    async def read(self, request: TraceFind) -> TracePage:
        topic = self._topics.get(request.topic)
        if request.sequence < 0:
            raise BadRequest(f"sequence is {request.sequence}; sequences begin at 0")
        size = min(max(request.size_max, SIZE_MIN), SIZE_MAX)
        row = PullRow(topic.id, request.sequence)
        async with self._turn:
            read = await self._fetcher.run(lambda: self._read(request, row, size))
        groups = {g.id: g for g in self._groups.of_topic(topic.id)} if read.steps else {}
        return TracePage(
            events=[trace_event(each, groups.get(each.record.group_id)) for each in read.steps],
            following=read.following,
            end=read.end,
            kept_since_ms=read.kept_since_ms,
        )

    def _read(self, request: TraceFind, row: PullRow, size: int) -> TraceRead:
        """On a thread, unpacking too: a record may name thousands of rows besides this one."""
        position = request.position
        if position < 0:
            position = self._pulls.position_at(request.since_ms) if request.since_ms > 0 else 0
        page = self._pulls.page(position, 0, size, row)
        return TraceRead(
            steps=steps_of(page.records, row.sequence)[:EVENTS_MAX],
            following=page.following,
            end=page.end,
            kept_since_ms=self._pulls.kept_since_ms(),
        )


def steps_of(records: bytes, sequence: int) -> list[TraceStep]:
    """Records that stand behind each other, as far as they are about one row."""
    data, form = memoryview(records), PullFormat()
    found: list[TraceStep] = []
    at = 0
    while at < len(data):
        size = form.size(data[at:])
        record = decode(data[at : at + size])
        attempt = next((n for first, end, n in record.ranges if first <= sequence < end), 0)
        found.append(TraceStep(replace(record, ranges=()), attempt))
        at += size
    return found


def trace_event(step: TraceStep, group: ConsumerGroup | None) -> TraceEvent:
    """A record as people read it; without a group that one is deleted."""
    record = step.record
    kind = record.kind
    again = kind in COMES_AGAIN
    failed = read_failure(record.text, record.at_ms) if kind in FAILED else None
    holder = Holder()
    if any(record.session):
        holder = holder_of_session(group, record.session)
    return TraceEvent(
        at_ms=record.at_ms,
        kind=kind.name.lower(),
        group=group.name if group is not None else f"#{record.group_id}",
        lane=lane_name(group) if group is not None else "topic",
        attempt=step.attempt,
        lease=record.lease,
        holder=holder,
        due_ms=record.at_ms + (record.argument & ~BY_POLICY) if again else 0,
        error=failure_line(failed),
    )
