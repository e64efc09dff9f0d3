"""How long things took, since the start and lately, as counts in fixed buckets. Pure.

Lately is the current span of `SPAN_S` and the one before it: two lists, whatever passes. What is
observed together and falls into one bucket is one step, however many rows it was.
"""

from bisect import bisect_left

from ternmq.metrics.histogram import Histogram

SPAN_S = 300.0
ROW_BOUNDS_S = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    3600.0,
    86400.0,
)
"""Of what rows of a group wait and are worked on: from a millisecond to a day."""


class RecentHistogram(Histogram):
    """A histogram that also knows the last minutes."""

    __slots__ = ("_before", "_lately", "_span")

    def __init__(self, bounds: tuple[float, ...] = ROW_BOUNDS_S) -> None:
        super().__init__(bounds)
        self._lately = [0] * (len(bounds) + 1)
        self._before = self._lately
        self._span = 0

    def bucket(self, seconds: float) -> int:
        """Which one it falls into."""
        return bisect_left(self.bounds, seconds)

    def observe_at(self, seconds: float, times: int, now: float) -> None:
        """So many took so long, and ended now."""
        if int(now / SPAN_S) != self._span:
            self._roll(now)
        at = bisect_left(self.bounds, seconds)
        self._counts[at] += times
        self._lately[at] += times
        self.total += seconds * times

    def counts(self) -> list[int]:
        """By bucket, since the start; the last one is beyond every bound."""
        return list(self._counts)

    def lately(self, now: float) -> list[int]:
        """By bucket, of the last five to ten minutes."""
        if int(now / SPAN_S) != self._span:
            self._roll(now)
        return [old + new for old, new in zip(self._before, self._lately, strict=True)]

    def add(self, other: "RecentHistogram") -> None:
        """Count what another one has observed, since its start, as well."""
        for at, count in enumerate(other._counts):
            self._counts[at] += count
        self.total += other.total

    def _roll(self, now: float) -> None:
        span = int(now / SPAN_S)
        empty = [0] * len(self._lately)
        self._before = self._lately if span == self._span + 1 else empty
        self._lately = list(empty)
        self._span = span
