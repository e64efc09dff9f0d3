"""Figures of servers without their metrics ports, and of groups: `mq.admin.figures`."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from ternmq.client.inspection.times import WaitAndHandle, wait_and_handle
from ternmq.client.model.arguments import typed_calls
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named
from ternmq.core.errors import ProtocolError, Unavailable
from ternmq.wire.inspection.figure_pages import FiguresPage, FiguresPageFind
from ternmq.wire.inspection.figures import Figure, FigureBuckets, Figures, FiguresFind
from ternmq.wire.inspection.times import GroupTimes
from ternmq.wire.messages.groups import GroupNamed
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.numbers import Command

PAGE = 2_000


@typed_calls
class FigureAdmin(AdminCalls):
    """Calls about the figures of servers."""

    async def figures(
        self, names: Sequence[str] = (), kind: BrokerGroupKind = "realtime"
    ) -> dict[str, Figures]:
        """The figures of every broker (or delay server) that leads, as its `/metrics` has them:
        those about it as a whole, or the named ones with all series; `age_s` seconds old."""
        groups = await self._fan_out.groups() if kind == "realtime" else []
        groups = groups or await self._cluster.some_masters(kind)
        found: dict[str, Figures] = {}
        silent: dict[str, str] = {}
        for group in groups:
            try:
                found[group] = await self._figures(group, kind, list(names))
            except Unavailable as error:
                silent[group] = error.message
        self._fan_out.lack(silent, done=sorted(found))
        return found

    async def figures_page(
        self,
        kind: Literal["groups", "topics"] = "groups",
        sort: str = "name",
        after: str = "",
        limit: int = 100,
        prefix: str = "",
        keys: list[tuple[str, str]] | None = None,
    ) -> dict[str, FiguresPage]:
        """One page of groups or topics of each broker group, cut there, and sums of all: by name,
        or the worst first (age, ready, dead, rate; topics: rate, refused); or only `keys`."""
        wanted = FiguresPageFind(
            kind=kind, sort=sort, after=after, limit=limit, prefix=prefix, keys=keys or []
        )
        found = await self._fan_out.ask(Command.FIGURES_PAGE, wanted, FiguresPage)
        return {
            name: replace(
                page,
                groups=[named(name, each) for each in page.groups],
                figures=[named(name, each) for each in page.figures],
                topics=[named(name, each) for each in page.topics],
            )
            for name, page in found.items()
        }

    async def group_times(self, topic: str, group: str) -> WaitAndHandle:
        """How long messages of a group waited and were worked on, lately and ever, in buckets."""
        wanted = GroupNamed(topic=topic, group=group)
        try:
            answers = await self._fan_out.ask(Command.GROUP_TIMES, wanted, GroupTimes)
        except ProtocolError:  # A broker of an earlier release, which counts nothing.
            return WaitAndHandle()
        return wait_and_handle(list(answers.values()))

    async def _figures(self, group: str, kind: BrokerGroupKind, names: list[str]) -> Figures:
        values: list[Figure] = []
        histograms: list[FigureBuckets] = []
        after, more, age_s = 0, True, 0.0
        while more:
            wanted = FiguresFind(names=names, after=after, limit=PAGE)
            link = self._cluster.server(group, kind)
            page = await self._cluster.ask(link, Command.FIGURES, wanted, Figures)
            values += page.values
            histograms += page.histograms
            after, age_s = page.following, max(age_s, page.age_s)
            more = bool(after)
        return Figures(values=values, histograms=histograms, age_s=age_s)
