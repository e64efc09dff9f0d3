"""The figures of a server over the wire: those of `/metrics`, without a port for them."""

from ternmq.wire.record import Number, Record


class FiguresFind(Record, frozen=True):
    names: list[str] = []
    """Of metrics, as docs/metrics.md has them. None: all that are about the server as a whole."""
    after: Number = 0
    limit: Number = 1000


class Figure(Record, frozen=True):
    name: str
    labels: list[str]
    """Values of its labels, in the order of the table of metrics."""
    value: float


class FigureBuckets(Record, frozen=True):
    """A histogram."""

    name: str
    labels: list[str]
    buckets: list[tuple[str, float]]
    """Upper bound, and how many were at most that much."""
    total: float
    """All that was observed, added up."""


class Figures(Record, frozen=True):
    values: list[Figure]
    histograms: list[FigureBuckets] = []
    age_s: float = 0.0
    """So old they are: figures are made every few seconds at most, for all who ask."""
    following: Number = 0
