"""TRACE: everything that the pull log says of one message, while the log has it (R23).

The log is gone through in parts, each by a reader thread, one at a time however many ask, and each
bounded by what was asked for: a client that wants more asks again. Whose session it was is known
while that client is connected. Says only what is safe; the newest steps are in ROW_STATE. Changes
nothing.
"""

import asyncio

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import failure_line, read_failure
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane_event import BY_POLICY
from ternmq.broker.inspection.message_states import holder_of_session, lane_name
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest
from ternmq.core.units import KIB, MIB
from ternmq.storage.pull.page import PullPage, PullRow
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
            page, kept_since_ms = await self._fetcher.run(lambda: self._page(request, row, size))
        records = decoded(page.records)
        groups = {group.id: group for group in self._groups.of_topic(topic.id)} if records else {}
        return TracePage(
            events=[
                trace_event(each, row.sequence, groups.get(each.group_id))
                for each in records[:EVENTS_MAX]
            ],
            following=page.following,
            end=page.end,
            kept_since_ms=kept_since_ms,
        )

    def _page(self, request: TraceFind, row: PullRow, size: int) -> tuple[PullPage, int]:
        """On a thread."""
        position = request.position
        if position < 0:
            position = self._pulls.position_at(request.since_ms) if request.since_ms > 0 else 0
        page = self._pulls.page(position, 0, size, row)
        return page, self._pulls.kept_since_ms()


def decoded(records: bytes) -> list[PullRecord]:
    """Records that stand behind each other."""
    data, form = memoryview(records), PullFormat()
    found: list[PullRecord] = []
    at = 0
    while at < len(data):
        size = form.size(data[at:])
        found.append(decode(data[at : at + size]))
        at += size
    return found


def trace_event(record: PullRecord, sequence: int, group: ConsumerGroup | None) -> TraceEvent:
    """A record as people read it; without a group that one is deleted."""
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
        attempt=next((n for first, end, n in record.ranges if first <= sequence < end), 0),
        lease=record.lease,
        holder=holder,
        due_ms=record.at_ms + (record.argument & ~BY_POLICY) if again else 0,
        error=failure_line(failed),
    )
