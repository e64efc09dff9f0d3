"""`mq.trace`: one message, wherever it is kept: its state in every group, what happened, and why.

Finds the message by its id (`find`), asks the broker group of each place for the states there and
for what the delivery records say, and puts it into sentences (`client/inspection/explain.py`). A
message that is not due yet is with a delay server, and is asked for there. Never changes anything,
and never takes a lease.
"""

from dataclasses import dataclass, field

from ternmq.client.admin.admin import Admin
from ternmq.client.config import ClientConfig
from ternmq.client.inspection.explain import Known, explain
from ternmq.client.reading.find import FindCall, Finding, make_find
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import GroupNotFound, TernError
from ternmq.discovery.hidden_topics import RESERVED
from ternmq.wire.inspection.rows import MessageState
from ternmq.wire.inspection.trace import TraceEvent
from ternmq.wire.messages.delays import DelayRow
from ternmq.wire.messages.groups import Group
from ternmq.wire.messages.stats import GroupFigures

ASKED_MAX = 50
"""Groups that are asked how they are doing, for the sentence; about others less is said."""
OPEN = frozenset({"ready", "in_flight", "waiting", "stopped", "moving", "filtered"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrace:
    """One message in one group."""

    state: MessageState
    why: str
    """What became of it, or what it waits for, in a sentence."""
    events: list[TraceEvent]
    """What the delivery records say, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTrace:
    """One place in which a message is kept."""

    found: Finding
    groups: list[GroupTrace]
    complete: bool
    """All delivery records since it was stored were there to be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """Everything that is known about one message."""

    places: list[PlaceTrace]
    delayed: list[DelayRow] = field(default_factory=list)
    """With a delay server, not due yet."""
    missing: Missing = field(default_factory=dict)
    """Servers that did not answer, and why: it may be there."""


class TraceCall:
    """One question about one message."""

    def __init__(self, cluster: Cluster, config: ClientConfig) -> None:
        self._cluster = cluster
        self._find = FindCall(cluster, config)
        self._missing: Missing = {}
        self._admin = Admin(cluster, self._missing)

    async def run(self, message_id: str | bytes, topic: str | None = None) -> MessageTrace:
        found = await self._find.run(make_find(topic, {"id": message_id}), self._missing)
        places = [await self._place(each) for each in found]
        return MessageTrace(
            places=places,
            delayed=await self._delayed(message_id, topic),
            missing=dict(self._missing),
        )

    async def _delayed(self, message_id: str | bytes, topic: str | None) -> list[DelayRow]:
        if not self._cluster.masters("delay") and not self._cluster.away("delay"):
            return []
        try:
            return await self._admin.delays.rows(topic=topic or "", id=message_id)
        except TernError as error:
            self._missing["delay servers"] = error.message
            return []

    async def _place(self, found: Finding) -> PlaceTrace:
        message = found.message
        topic, where = message.topic, found.broker_group
        trace = await self._admin.trace(topic, message.sequence, message.stored_at, where)
        states = await self._admin.message_states(topic, [message.sequence], "", where)
        groups = []
        for number, state in enumerate(states):
            events = [e for e in trace.events if (e.group, e.lane) == (state.group, state.lane)]
            asked = number < ASKED_MAX and state.state in OPEN
            group, figures = await self._doing(found, state) if asked else (None, None)
            known = Known(group=group, figures=figures, events=tuple(events))
            groups.append(GroupTrace(state=state, why=explain(state, known), events=events))
        return PlaceTrace(found=found, groups=groups, complete=trace.complete)

    async def _doing(
        self, found: Finding, state: MessageState
    ) -> tuple[Group | None, GroupFigures | None]:
        """The group, and how it is doing on the broker group that has the message."""
        topic = found.message.topic
        if state.group.startswith(RESERVED):
            return None, None  # Stands for what people handled.
        try:
            groups = await self._admin.groups(topic, state.group)
            figures = await self._admin.group_figures(topic, state.group)
        except GroupNotFound:
            return None, None  # Deleted in this very moment.
        here = [each for each in groups if each.broker_group == found.broker_group]
        doing = [each for each in figures if each.broker_group == found.broker_group]
        group = next((each for each in here if each.ledger.lane == state.lane), None)
        return group, next((each for each in doing if each.lane == state.lane), None)
