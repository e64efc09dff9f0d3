"""FIGURES_PAGE: groups and topics sorted, cut and sliced, so that a look at thousands hurts nobody.

All groups and topics are counted when somebody asks, at most every `COUNT_EVERY_S` and resting
`REST_SHARE` times as long as it took, for all who ask meanwhile. Counting goes on a few at a time
with a pause after each, so a request that comes meanwhile waits for a tenth of a millisecond. What
is counted decides the order and the sums; the rows of a page are described when it is asked for.
Changes nothing.
"""

import asyncio
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.limits.slices import Slices
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.operations.admin import describe
from ternmq.broker.operations.stats import BrokerStats
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest
from ternmq.core.lifecycle import Background
from ternmq.discovery.hidden_topics import RESERVED, lane_topic
from ternmq.wire.inspection.figure_pages import (
    FIGURES_LISTED_MAX,
    FIGURES_SORTED_MAX,
    FiguresPage,
    FiguresPageFind,
    FigureSums,
)
from ternmq.wire.messages.topics import Topic

COUNT_EVERY_S = 1.0
REST_SHARE = 20
SLICE = 10
PAUSE_S = 0.001
SMALL = 500
"""So few are counted without a pause."""
SORT_SLICE = 250

GroupKey = tuple[str, str]
FigureOrder = Callable[["Counted"], tuple[float, ...]]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Counted:
    """A group, or a topic, as it was counted: what it is sorted by."""

    key: GroupKey
    ready: int = 0
    age_ms: int = 0
    dead: int = 0
    rate: float = 0.0
    refused: int = 0


@dataclass(slots=True, kw_only=True)
class Count:
    """Everything as it was counted once."""

    at: float
    groups: dict[GroupKey, Counted]
    topics: dict[GroupKey, Counted]
    sums: FigureSums
    orders: dict[tuple[str, str], list[GroupKey]] = field(default_factory=dict)
    """By kind and sort, as far as they were asked for."""


GROUP_SORTS: dict[str, FigureOrder] = {
    "age": lambda it: (-max(it.age_ms, 0), -it.ready),
    "ready": lambda it: (-it.ready,),
    "dead": lambda it: (-it.dead, -it.ready),
    "rate": lambda it: (-it.rate,),
}
TOPIC_SORTS: dict[str, FigureOrder] = {
    "rate": lambda it: (-it.rate,),
    "refused": lambda it: (-it.refused, -it.rate),
}
SORTS = {"groups": GROUP_SORTS, "topics": TOPIC_SORTS}


class FigurePages:
    """The FIGURES_PAGE command."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: TopicNames,
        traffic: TrafficCounters,
        stats: BrokerStats,
        now: Callable[[], float],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._traffic = traffic
        self._stats = stats
        self._now = now
        self._slices = Slices(SLICE)
        self._turn = asyncio.Lock()
        self._background = Background("counting groups and topics", lambda error: None)
        self._count: Count | None = None
        self._again_at = 0.0

    async def page(self, request: FiguresPageFind) -> FiguresPage:
        check(request)
        count = await self._counted()
        if request.keys:
            keys, following = list(dict.fromkeys(request.keys)), ""
        else:
            keys, following = await self._chosen(count, request)
        age_s, sums = round(self._now() - count.at, 3), count.sums
        if request.kind == "topics":
            names = [topic for topic, _ in keys if self._topics.find(topic) is not None]
            topics = await self._slices.make(names, self._stats.topic)
            return FiguresPage(topics=topics, following=following, sums=sums, age_s=age_s)
        lanes = [lane for key in keys for lane in self._lanes(key)]
        described = await self._slices.make(lanes, describe)
        ages = await self._slices.make(lanes, self._stats.age_ms_now)
        figures = [
            self._stats.group_now(lane, -1 if age is None else age)
            for lane, age in zip(lanes, ages, strict=True)
        ]
        return FiguresPage(
            groups=described, figures=figures, following=following, sums=sums, age_s=age_s
        )

    # -- choosing

    async def _chosen(self, count: Count, request: FiguresPageFind) -> tuple[list[GroupKey], str]:
        found = count.groups if request.kind == "groups" else count.topics
        if request.sort == "name":
            keys = await self._by_name(count, request.kind, found)
            begin = bisect_right(keys, read_key(request.after)) if request.after else 0
            first = max(begin, bisect_right(keys, (request.prefix, "")) if request.prefix else 0)
            some = keys[first : first + request.limit + 1]
            some = [key for key in some if key[0].startswith(request.prefix)]
        else:
            keys = await self._by_figure(count, request, found)
            first = int(request.after) if request.after else 0
            some = keys[first : first + request.limit + 1]
        shown = some[: request.limit]
        if len(some) <= request.limit:
            return shown, ""
        last = "/".join(shown[-1]) if request.sort == "name" else str(first + request.limit)
        return shown, last

    async def _by_name(
        self, count: Count, kind: str, found: dict[GroupKey, Counted]
    ) -> list[GroupKey]:
        known = count.orders.get((kind, "name"))
        if known is None:
            parts = await self._in_parts(list(found), sorted)
            known = count.orders[kind, "name"] = await self._taken(heapq.merge(*parts))
        return known

    async def _by_figure(
        self, count: Count, request: FiguresPageFind, found: dict[GroupKey, Counted]
    ) -> list[GroupKey]:
        """The worst ones; how far a list goes that is sorted so is bounded."""
        name = request.kind, f"{request.sort} {request.prefix}"
        known = count.orders.get(name)
        if known is None:
            order = SORTS[request.kind][request.sort]
            rows = [each for each in found.values() if each.key[0].startswith(request.prefix)]

            def best(some: list[Counted]) -> list[Counted]:
                return sorted(some, key=lambda it: (*order(it), *it.key))

            parts = await self._in_parts(rows, best)
            merged = heapq.merge(*parts, key=lambda it: (*order(it), *it.key))
            known = [each.key for each in await self._taken(merged, FIGURES_SORTED_MAX)]
            if len(count.orders) < len(GROUP_SORTS) + len(TOPIC_SORTS) + 20:
                count.orders[name] = known
        return known

    async def _in_parts(self, rows: list[T], sort: Callable[[list[T]], list[T]]) -> list[list[T]]:
        parts: list[list[T]] = []
        for at in range(0, len(rows), SORT_SLICE):
            parts.append(sort(rows[at : at + SORT_SLICE]))
            await asyncio.sleep(0)
        return parts

    async def _taken(self, merged: Iterable[T], most: int = 2**62) -> list[T]:
        taken: list[T] = []
        for each in merged:
            taken.append(each)
            if len(taken) >= most:
                break
            if len(taken) % SORT_SLICE == 0:
                await asyncio.sleep(0)
        return taken

    def _lanes(self, key: GroupKey) -> list[ConsumerGroup]:
        """A group on its topic, and on its private lane if it has one; none that is gone."""
        topic = self._topics.find(key[0])
        if topic is None:
            return []
        found = [self._groups.find(topic.id, key[1])]
        beside = self._topics.find(lane_topic(topic.id, key[1]))
        if beside is not None:
            found += list(self._groups.of_topic(beside.id))
        return [lane for lane in found if lane is not None]

    # -- counting

    async def _counted(self) -> Count:
        """As last counted. When that is due again it begins beside, unless there are few: nobody
        but the first who ever asks waits for thousands."""
        count = self._count
        if count is None or len(count.groups) + len(count.topics) <= SMALL:
            return await self._count_again()
        if self._now() >= self._again_at and not self._turn.locked():
            self._background.task(self._refresh(), name="tern-figures")
        return count

    async def _refresh(self) -> None:
        await self._count_again()

    async def _count_again(self) -> Count:
        async with self._turn:
            if self._count is None or self._now() >= self._again_at:
                began = self._now()
                self._count, busy_s = await self._count_all(began)
                self._again_at = began + max(COUNT_EVERY_S, busy_s * REST_SHARE)
            return self._count

    async def _count_all(self, at: float) -> tuple[Count, float]:
        counted_groups: dict[GroupKey, Counted] = {}
        counted_topics: dict[GroupKey, Counted] = {}
        busy_s = 0.0
        sums = dict.fromkeys(FigureSums.__struct_fields__, 0.0)
        groups = [each for each in self._groups if not each.name.startswith(RESERVED)]
        topics = [each for each in self._topics.all() if not each.name.startswith(RESERVED)]
        work: list[tuple[Sequence[ConsumerGroup] | Sequence[Topic], Callable[..., None]]] = [
            (groups, lambda it: self._count_group(it, counted_groups, sums)),
            (topics, lambda it: self._count_topic(it, counted_topics, sums)),
        ]
        pause_s = PAUSE_S if len(groups) + len(topics) > SMALL else 0
        for items, note in work:
            for first in range(0, len(items), SLICE):
                began = self._now()
                for each in items[first : first + SLICE]:
                    note(each)
                busy_s += self._now() - began
                await asyncio.sleep(pause_s)
        added_up = FigureSums(
            groups=len(counted_groups),
            topics=len(counted_topics),
            ready=int(sums["ready"]),
            in_flight=int(sums["in_flight"]),
            waiting_retry=int(sums["waiting_retry"]),
            dead=int(sums["dead"]),
            consumers=int(sums["consumers"]),
            rate_in=round(sums["rate_in"], 1),
            bytes_in=round(sums["bytes_in"], 1),
            rate_out=round(sums["rate_out"], 1),
        )
        count = Count(at=at, groups=counted_groups, topics=counted_topics, sums=added_up)
        return count, busy_s

    def _count_group(
        self, group: ConsumerGroup, into: dict[GroupKey, Counted], sums: dict[str, float]
    ) -> None:
        if group.deleted:
            return
        line = group.ledger()
        key = group.beside or group.topic, group.name
        counted = into.get(key)
        if counted is None:
            counted = into[key] = Counted(key=key)
        rate = self._traffic.rates(self._traffic.delivered, group.id).messages_10s
        counted.ready += line.ready
        counted.dead += line.dead
        counted.rate += rate
        counted.age_ms = max(counted.age_ms, self._stats.age_ms_now(group) or 0)
        for name in ("ready", "in_flight", "waiting_retry", "dead"):
            sums[name] += getattr(line, name)
        sums["consumers"] += len(group.consumers)
        sums["rate_out"] += rate

    def _count_topic(
        self, topic: Topic, into: dict[GroupKey, Counted], sums: dict[str, float]
    ) -> None:
        sent = self._traffic.rates(self._traffic.sent, topic.id)
        refused = sum(self._traffic.refused.get(topic.id, {}).values())
        key = topic.name, ""
        into[key] = Counted(key=key, rate=sent.messages_10s, refused=refused)
        sums["rate_in"] += sent.messages_10s
        sums["bytes_in"] += sent.bytes_10s


def check(request: FiguresPageFind) -> None:
    """Hostile numbers and words are refused."""
    if request.kind not in SORTS:
        raise BadRequest(f"kind is {request.kind[:40]!r}; it can be {', '.join(SORTS)}")
    known = ["name", *SORTS[request.kind]]
    if request.sort not in known:
        raise BadRequest(f"sort is {request.sort[:40]!r}; it can be {', '.join(known)}")
    if not 0 < request.limit <= FIGURES_LISTED_MAX or len(request.keys) > FIGURES_LISTED_MAX:
        raise BadRequest(f"a page has 1 to {FIGURES_LISTED_MAX} entries")
    if request.after and request.sort != "name":
        number = request.after
        if not (number.isascii() and number.isdigit() and len(number) < 9):
            raise BadRequest("`after` is what `following` of the page before said")


def read_key(text: str) -> GroupKey:
    topic, _, group = text.partition("/")
    return topic, group
