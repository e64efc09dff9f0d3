"""One look at the cluster: topics, groups, servers, delayed messages, rates. Values only.

Made by the watch once a second and shown to everybody as it is. Groups are added up over lanes and
broker groups; what a silent broker group has is not in the sums, so `missing` names it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ternmq.client.admin.broker_members import BrokerState
from ternmq.client.admin.merge_answers import added_rates, merged_consumers, merged_figures
from ternmq.wire.inspection.figure_pages import FigureSums
from ternmq.wire.inspection.sessions import SenderCount
from ternmq.wire.messages.groups import Group, LedgerLine
from ternmq.wire.messages.stats import GroupFigures, Rates, Status, TopicFigures
from ternmq.wire.messages.topics import Topic

STATES = (
    "ready",
    "in_flight",
    "waiting_retry",
    "dead",
    "acked",
    "filtered",
    "skipped",
    "expired",
)
"""Of a ledger line, open ones first."""
OPEN_STATES = ("ready", "in_flight", "waiting_retry")
NEVER = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A consumer group on a topic, all broker groups and lanes together."""

    topic: str
    name: str
    counts: Mapping[str, int]
    """By state, see `STATES`."""
    total: int
    members: int
    paused: bool
    ordered: bool
    filter: str
    age_ms: int
    """Of the oldest ready message; -1: not known."""
    rate_out: float
    """Messages a second over the last ten."""
    held_back: str
    alarm: bool
    backlogs: Sequence[int] = ()
    """Ready messages at the last looks."""
    growth: float = 0.0
    """Ready messages a second, more or less."""

    @property
    def ready(self) -> int:
        return self.counts["ready"]

    @property
    def dead(self) -> int:
        return self.counts["dead"]

    @property
    def open(self) -> int:
        return sum(self.counts[state] for state in OPEN_STATES)

    @property
    def adds_up(self) -> bool:
        return sum(self.counts.values()) == self.total

    @property
    def empty_in_s(self) -> float:
        """Until nothing is ready, as it goes now; `NEVER` while it does not become less."""
        if not self.ready:
            return 0.0
        return self.ready / -self.growth if self.growth < -0.01 else NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """A topic, all broker groups together."""

    topic: Topic
    rate_in: float = 0.0
    bytes_in: float = 0.0
    refused: int = 0
    put_aside: int = 0
    rates: Sequence[float] = ()
    """Messages a second at the last looks."""

    @property
    def name(self) -> str:
        return self.topic.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPoint:
    """Rates of the whole cluster at one look."""

    at_ms: int
    rate_in: float
    rate_out: float


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All of it."""

    at_ms: int
    number: int
    """Rises with every look."""
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], GroupView] = field(default_factory=dict)
    sums: FigureSums = field(default_factory=FigureSums)
    """Of all of them, as the brokers last counted."""
    servers: Sequence[BrokerState] = ()
    statuses: Sequence[Status] = ()
    senders: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Messages a second by application and topic, between the last two looks at it."""
    delayed: int = 0
    horizon: Sequence[tuple[int, int]] = ()
    """Delayed messages by the hour (or what `hour_ms` is): (start, count)."""
    hour_ms: int = 3_600_000
    flow: Sequence[FlowPoint] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Whose part is not in here, and why."""
    trouble: str = ""
    """Nobody answers: why. Everything else is as it was seen last."""

    @property
    def rate_in(self) -> float:
        return self.flow[-1].rate_in if self.flow else 0.0

    @property
    def rate_out(self) -> float:
        return self.flow[-1].rate_out if self.flow else 0.0

    def groups_of(self, topic: str) -> list[GroupView]:
        return self.by_topic.get(topic, [])

    @cached_property
    def by_topic(self) -> dict[str, list[GroupView]]:
        """Groups of each topic."""
        found: dict[str, list[GroupView]] = {}
        for view in self.groups.values():
            found.setdefault(view.topic, []).append(view)
        return found

    def named(self, group: str) -> list[GroupView]:
        return [view for view in self.groups.values() if view.name == group]


def group_views(
    groups: Iterable[Group], figures: Iterable[GroupFigures]
) -> dict[tuple[str, str], GroupView]:
    """What the brokers said about groups, added up, by topic and name."""
    rates: dict[tuple[str, str], list[GroupFigures]] = {}
    for each in merged_figures(figures):
        rates.setdefault((each.topic, each.group), []).append(each)
    found: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        found.setdefault((group.topic, group.name), []).append(group)
    return {key: _view(found[key], rates.get(key, [])) for key in sorted(found)}


def _view(parts: Sequence[Group], figures: Sequence[GroupFigures]) -> GroupView:
    first = parts[0]
    lines = [part.ledger for part in parts]
    ages = [each.backlog_ms for each in figures if each.backlog]
    rates = added_rates([each.delivered for each in figures]) if figures else Rates()
    return GroupView(
        topic=first.topic,
        name=first.name,
        counts={state: _sum(lines, state) for state in STATES},
        total=_sum(lines, "total"),
        members=len(merged_consumers(member for part in parts for member in part.members)),
        paused=any(part.settings.paused for part in parts),
        ordered=first.ordered,
        filter=first.filter,
        age_ms=-1 if -1 in ages else max(ages, default=0),
        rate_out=rates.messages_10s,
        held_back=", ".join(dict.fromkeys(x.held_back for x in figures if x.held_back)),
        alarm=any(each.alarm for each in figures),
    )


def _sum(lines: Iterable[LedgerLine], name: str) -> int:
    return sum(getattr(line, name) for line in lines)


def topic_views(topics: Iterable[Topic], figures: Iterable[TopicFigures]) -> dict[str, TopicView]:
    """Topics with what the brokers said about them."""
    parts_of: dict[str, list[TopicFigures]] = {}
    for each in figures:
        parts_of.setdefault(each.topic, []).append(each)
    views: dict[str, TopicView] = {}
    for topic in topics:
        parts = parts_of.get(topic.name, [])
        sent = added_rates([part.sent for part in parts]) if parts else Rates()
        views[topic.name] = TopicView(
            topic=topic,
            rate_in=sent.messages_10s,
            bytes_in=sent.bytes_10s,
            refused=sum(sum(part.refused.values()) for part in parts),
            put_aside=sum(part.put_aside for part in parts),
        )
    return views


def sent_by(counts: Iterable[SenderCount]) -> dict[tuple[str, str], int]:
    """Messages by application and topic, all broker groups together."""
    found: dict[tuple[str, str], int] = {}
    for each in counts:
        key = each.app, each.topic
        found[key] = found.get(key, 0) + each.messages
    return found


def sender_rates(
    before: Mapping[tuple[str, str], int], now: Mapping[tuple[str, str], int], seconds: float
) -> dict[tuple[str, str], float]:
    """Messages a second between two counts; who was not counted before has none yet, and neither
    has one whose broker began to count anew."""
    return {
        key: max(0, count - before.get(key, count)) / max(seconds, 0.001)
        for key, count in now.items()
    }


def growth(backlogs: Sequence[tuple[float, int]]) -> float:
    """Messages a second between the first and the last of (seconds, ready)."""
    if len(backlogs) < 2:
        return 0.0
    (begun, before), (ended, after) = backlogs[0], backlogs[-1]
    return (after - before) / (ended - begun) if ended > begun else 0.0
