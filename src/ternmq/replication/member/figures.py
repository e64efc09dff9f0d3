"""FIGURES: what `/metrics` shows of a broker or a delay server, over the wire and in pages.

Figures of everything are not cheap with ten thousand groups, so they are made at most every
`KEPT_S`, in the slices of a scrape, and shared by all who ask meanwhile; an answer says how old
they are. Only the page that was asked for is made into an answer. Changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from ternmq.core.errors import BadRequest
from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples, Source
from ternmq.metrics.table import BY_NAME, METRICS
from ternmq.wire.inspection.figures import Figure, FigureBuckets, Figures, FiguresFind

KEPT_S = 5.0
PAGE_MAX = 2_000
OF_MANY = frozenset({"topic", "group"})
"""Metrics with such a label have a series for each of thousands."""
OF_SERVER = [each.name for each in METRICS if not OF_MANY & set(each.labels)]

Series = tuple[str, tuple[str, ...], float | Histogram]


class FigureInspection:
    """The FIGURES command."""

    def __init__(self, source: Source, now: Callable[[], float]) -> None:
        self._source = source
        self._now = now
        self._made: tuple[float, Samples] | None = None
        self._turn = asyncio.Lock()

    async def figures(self, request: FiguresFind) -> Figures:
        unknown = [name for name in request.names if name not in BY_NAME]
        if unknown:
            raise BadRequest(f"there is no metric {unknown[0][:80]!r}; docs/metrics.md has them")
        if not 0 < request.limit <= PAGE_MAX or request.after < 0:
            raise BadRequest(f"limit can be 1 to {PAGE_MAX}, and `after` is not below 0")
        made_at, samples = await self._samples()
        names = list(dict.fromkeys(request.names)) or OF_SERVER
        end = request.after + request.limit
        page = list(islice(series_of(samples, names), request.after, end + 1))
        shown = page[: request.limit]
        return Figures(
            values=[
                Figure(name=name, labels=list(labels), value=value)
                for name, labels, value in shown
                if not isinstance(value, Histogram)
            ],
            histograms=[
                FigureBuckets(
                    name=name, labels=list(labels), buckets=value.buckets(), total=value.total
                )
                for name, labels, value in shown
                if isinstance(value, Histogram)
            ],
            age_s=round(self._now() - made_at, 3),
            following=end if len(page) > request.limit else 0,
        )

    async def _samples(self) -> tuple[float, Samples]:
        async with self._turn:
            if self._made is None or self._now() - self._made[0] >= KEPT_S:
                samples = Samples()
                await self._source(samples)
                self._made = (self._now(), samples)
            return self._made


def series_of(samples: Samples, names: list[str]) -> Iterator[Series]:
    """Metric, labels, value; in the order of the names."""
    for name in names:
        for labels, value in samples.values.get(name, {}).items():
            yield name, labels, value
        for labels, histogram in samples.histograms.get(name, {}).items():
            yield name, labels, histogram
