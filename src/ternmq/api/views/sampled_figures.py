"""Groups and topics as they were last seen: a few are looked at each time, all of them in rounds.

Each look asks the brokers for the worst ones, for those that pages show (`pin`), and for the next
`ROUND` by name; after the last one the round begins anew. So a cluster with ten thousand groups
is asked for some two hundred a second, what is shown is a second old, and every list is complete.
The first look goes around once. Brokers that cannot cut their answers are asked for everything.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ternmq.api.views.snapshot import GroupView, TopicView, group_views, topic_views
from ternmq.client.admin.admin import Admin
from ternmq.core.errors import ProtocolError
from ternmq.wire.inspection.figure_pages import FiguresPage, FigureSums
from ternmq.wire.messages.groups import Group
from ternmq.wire.messages.stats import GroupFigures, TopicFigures
from ternmq.wire.messages.topics import Topic

ROUND = 150
"""Looked at by name each time."""
WORST = 50
"""Looked at each time, by age and by dead letters each."""
PINNED_S = 20.0
PINNED_MAX = 300
GENTLE_S = 0.05
"""Between two steps of the first round."""

GroupKey = tuple[str, str]


class SampledGroups:
    """Every group, as last seen."""

    def __init__(self) -> None:
        self.views: dict[GroupKey, GroupView] = {}
        self.sums = FigureSums()
        self._after = ""
        self._whole = False
        self._pinned: dict[GroupKey, float] = {}

    def pin(self, keys: Iterable[GroupKey], now: float) -> None:
        """A page shows these."""
        for key in keys:
            self._pinned.pop(key, None)
            self._pinned[key] = now
        while len(self._pinned) > PINNED_MAX:
            del self._pinned[next(iter(self._pinned))]

    async def look(self, admin: Admin, now: float) -> set[GroupKey]:
        """Ask for some; which ones were seen."""
        try:
            return await self._look(admin, now)
        except ProtocolError:  # A broker of an earlier release.
            groups, figures = await asyncio.gather(admin.groups(), admin.group_figures())
            self.views = group_views(groups, figures)
            self.sums = sums_of(self.views)
            return set(self.views)

    async def _look(self, admin: Admin, now: float) -> set[GroupKey]:
        seen = await self._next_round(admin)
        while not self._whole:
            await asyncio.sleep(GENTLE_S)
            seen |= await self._next_round(admin)
        pinned = {key for key, at in self._pinned.items() if now - at <= PINNED_S}
        self._pinned = {key: self._pinned[key] for key in self._pinned if key in pinned}
        if len(self.views) > ROUND:
            for sort in ("age", "dead"):
                pages = await admin.figures_page("groups", sort, limit=WORST)
                if len(pages) == 1:
                    seen |= self._learn(pages)
                else:  # Each has others on its page: ask all of them for all of these.
                    pinned |= {
                        (each.topic, each.name) for page in pages.values() for each in page.groups
                    }
        wanted = sorted(pinned - seen)[:PINNED_MAX]
        if wanted:
            pages = await admin.figures_page("groups", limit=1, keys=wanted)
            seen |= self._learn(pages)
            for key in set(wanted) - seen:
                self.views.pop(key, None)
        return seen & set(self.views)

    async def _next_round(self, admin: Admin) -> set[GroupKey]:
        """The next ones by name; what is gone from there is forgotten."""
        after = self._after
        pages = await admin.figures_page("groups", "name", after=after, limit=ROUND)
        ends = [_key(page.following) for page in pages.values() if page.following]
        end = min(ends, default=None)
        seen = self._learn(pages, end)
        begin = _key(after) if after else None
        for key in list(self.views):
            inside = (begin is None or key > begin) and (end is None or key <= end)
            if inside and key not in seen:
                del self.views[key]
        self._after = "" if end is None else "/".join(end)
        self._whole = self._whole or end is None
        self.sums = _added(page.sums for page in pages.values())
        return seen

    def _learn(
        self, pages: Mapping[str, FiguresPage], end: GroupKey | None = None
    ) -> set[GroupKey]:
        groups: list[Group] = [each for page in pages.values() for each in page.groups]
        figures: list[GroupFigures] = [each for page in pages.values() for each in page.figures]
        found = group_views(groups, figures)
        if end is not None:  # Behind it another broker group may have more of the same.
            found = {key: view for key, view in found.items() if key <= end}
        self.views.update(found)
        return set(found)


class SampledTopics:
    """Every topic, as last seen."""

    def __init__(self) -> None:
        self.views: dict[str, TopicView] = {}
        self._at = 0
        self._pinned: dict[str, float] = {}

    def pin(self, names: Iterable[str], now: float) -> None:
        """A page shows these."""
        for name in names:
            self._pinned.pop(name, None)
            self._pinned[name] = now
        while len(self._pinned) > PINNED_MAX:
            del self._pinned[next(iter(self._pinned))]

    async def look(self, admin: Admin, topics: Sequence[Topic], now: float) -> list[str]:
        """Ask for the figures of some; which ones were seen."""
        by_name = {topic.name: topic for topic in topics}
        pinned = [name for name, at in self._pinned.items() if now - at <= PINNED_S]
        self._pinned = {name: self._pinned[name] for name in pinned}
        if self._at >= len(topics):
            self._at = 0
        wanted = [topic.name for topic in topics[self._at : self._at + ROUND]]
        self._at += ROUND
        busy = await self._busiest(admin) if len(topics) > ROUND else {}
        wanted = [name for name in dict.fromkeys([*pinned, *busy, *wanted]) if name in by_name]
        figures: list[TopicFigures] = await admin.topic_figures(wanted) if wanted else []
        seen = topic_views([by_name[name] for name in wanted], figures)
        known = {
            name: seen.get(name) or self._kept(topic) for name, topic in sorted(by_name.items())
        }
        self.views = known
        return list(seen)

    def _kept(self, topic: Topic) -> TopicView:
        before = self.views.get(topic.name)
        return before if before is not None and before.topic == topic else TopicView(topic=topic)

    async def _busiest(self, admin: Admin) -> dict[str, None]:
        try:
            pages = await admin.figures_page("topics", "rate", limit=WORST)
        except ProtocolError:  # A broker of an earlier release.
            return {}
        return {each.topic: None for page in pages.values() for each in page.topics}


def _key(text: str) -> GroupKey:
    topic, _, group = text.partition("/")
    return topic, group


def _added(sums: Iterable[FigureSums]) -> FigureSums:
    """Of all broker groups; each of them knows every topic, and has every group."""
    every = list(sums)
    whole = {name: sum(getattr(each, name) for each in every) for name in SUMMED}
    most = {name: max((getattr(each, name) for each in every), default=0) for name in SAME}
    return FigureSums(**whole, **most)


SAME = ("topics", "groups", "consumers")
SUMMED = tuple(name for name in FigureSums.__struct_fields__ if name not in SAME)


def sums_of(views: Mapping[GroupKey, GroupView]) -> FigureSums:
    """Of these groups together."""
    return FigureSums(
        groups=len(views),
        ready=sum(view.ready for view in views.values()),
        dead=sum(view.dead for view in views.values()),
        rate_out=sum(view.rate_out for view in views.values()),
    )
