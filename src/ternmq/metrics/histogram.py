"""How long things took, as counts in fixed buckets. Pure.

One thread observes, any thread may look: a look between two additions is off by one observation,
never more, and the next look is right.
"""

from bisect import bisect_left

LATENCY_BOUNDS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
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
)
LATENESS_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)


class Histogram:
    """Observations by size, and their sum."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BOUNDS_S) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # The last one is beyond every bound.
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound as text and how many were at most that much; the last is everything."""
        found: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found
