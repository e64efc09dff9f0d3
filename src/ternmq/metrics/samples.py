"""The figures of one scrape, on their way from the servers to the page. Pure.

Series are bounded: of many topics the oldest have series of their own and the rest is added up
under `OTHER`. Oldest first, because who has its own series then changes only when something is
deleted, and a counter that changed places would look like a jump.
"""

from collections.abc import Awaitable, Callable
from itertools import chain

from ternmq.metrics.histogram import Histogram
from ternmq.metrics.table import BY_NAME

Labels = tuple[str, ...]


class Samples:
    """Values by metric and labels; the same labels twice are added up."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = {}
        self.histograms: dict[str, dict[Labels, Histogram]] = {}

    def add(self, name: str, value: float, *labels: str) -> None:
        assert BY_NAME[name].kind != "histogram"
        assert len(labels) == len(BY_NAME[name].labels), f"{name} has other labels"
        series = self.values.setdefault(name, {})
        series[labels] = series.get(labels, 0.0) + value

    def highest(self, name: str, value: float, *labels: str) -> None:
        """Add a figure; of equal labels the larger one counts: ages cannot be added."""
        series = self.values.setdefault(name, {})
        series[labels] = max(series.get(labels, 0.0), value)

    def histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        assert BY_NAME[name].kind == "histogram"
        assert len(labels) == len(BY_NAME[name].labels), f"{name} has other labels"
        self.histograms.setdefault(name, {})[labels] = histogram

    def names(self) -> set[str]:
        return set(chain(self.values, self.histograms))


Source = Callable[[Samples], Awaitable[None]]
"""Adds the figures of one server; runs on its loop."""
