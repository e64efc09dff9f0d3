"""Single messages as groups see them: `mq.admin.message_states`, `leases`, `waiting`, `trace`.

A sequence belongs to one broker group, so those calls need `broker_group` where there are several;
what is asked of a whole group is asked of all broker groups. Lists come a page at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.start import milliseconds
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named
from ternmq.wire.inspection.rows import (
    ErrorCount,
    LeaseFind,
    LeaseInfo,
    LeasePage,
    MessageState,
    MessageStateFind,
    MessageStates,
    WaitingFind,
    WaitingPage,
    WaitingRow,
)
from ternmq.wire.inspection.trace import TraceEvent, TraceFind, TracePage
from ternmq.wire.numbers import Command

PAGES_MAX = 10_000
LEASES_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessages:
    """Messages of a group that wait for their next attempt."""

    rows: list[WaitingRow]
    """Those that are due first."""
    total: int
    """All that wait, also those that are not shown."""
    errors: list[ErrorCount]
    """By what they failed of, the most frequent first."""
    scanned: int
    """So many were looked at for `errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What the delivery records say of one message."""

    events: list[TraceEvent]
    complete: bool
    """False: the records since the message was stored are not all kept, or not all were read."""


@typed_calls
class InspectionAdmin(AdminCalls):
    """Calls that look at messages without reading them."""

    async def message_states(
        self, topic: str, sequences: Sequence[int], group: str = "", broker_group: str = ""
    ) -> list[MessageState]:
        """Where messages are, as each group of the topic (or one group) sees them."""
        owner = await self._fan_out.only("a sequence", broker_group)
        found: list[MessageState] = []
        after = ""
        for _ in range(PAGES_MAX):
            wanted = MessageStateFind(
                topic=topic, sequences=list(sequences), group=group, after=after
            )
            answers = await self._fan_out.ask(Command.ROW_STATE, wanted, MessageStates, [owner])
            page = answers.get(owner, MessageStates(states=[]))
            found += [named(owner, state) for state in page.states]
            after = page.following
            if not after:
                break
        return found

    async def leases(self, topic: str, group: str, limit: int = LEASES_LIMIT) -> list[LeaseInfo]:
        """Who holds which messages since when and until when; the oldest first."""
        wanted = LeaseFind(topic=topic, group=group, limit=limit)
        answers = await self._fan_out.ask(Command.LEASES, wanted, LeasePage)
        found = [named(name, lease) for name, page in answers.items() for lease in page.leases]
        return sorted(found, key=lambda lease: (lease.since_ms, lease.id))[:limit]

    async def waiting(self, topic: str, group: str, limit: int = 100) -> WaitingMessages:
        """What waits for its next attempt: what is due first, and all of it counted by error."""
        wanted = WaitingFind(topic=topic, group=group, limit=limit)
        answers = await self._fan_out.ask(Command.WAITING, wanted, WaitingPage)
        rows = [named(name, row) for name, page in answers.items() for row in page.rows]
        counts: dict[str, int] = {}
        for page in answers.values():
            for each in page.errors:
                counts[each.error] = counts.get(each.error, 0) + each.rows
        return WaitingMessages(
            rows=sorted(rows, key=_due)[:limit],
            total=sum(page.total for page in answers.values()),
            errors=[
                ErrorCount(error=error, rows=count)
                for error, count in sorted(counts.items(), key=lambda item: -item[1])
            ],
            scanned=sum(page.scanned for page in answers.values()),
        )

    async def trace(
        self,
        topic: str,
        sequence: int,
        stored_at: datetime | None = None,
        broker_group: str = "",
        pages_max: int = PAGES_MAX,
    ) -> Trace:
        """What happened to a message, from the delivery records that the broker keeps; with
        `stored_at` older ones are not looked at. A page is about 4 MiB of them."""
        owner = await self._fan_out.only("a sequence", broker_group)
        since_ms = 0 if stored_at is None else milliseconds(stored_at, "stored_at")
        events: list[TraceEvent] = []
        position = -1
        for _ in range(pages_max):
            wanted = TraceFind(topic=topic, sequence=sequence, position=position, since_ms=since_ms)
            answers = await self._fan_out.ask(Command.TRACE, wanted, TracePage, [owner])
            page = answers.get(owner)
            if page is None:
                break
            events += [named(owner, event) for event in page.events]
            position = page.following
            if position >= page.end:
                return Trace(events=events, complete=page.kept_since_ms <= since_ms)
        return Trace(events=events, complete=False)


def _due(row: WaitingRow) -> tuple[bool, int, int]:
    return row.due_ms < 0, row.due_ms, row.first
