"""Which rows were lost with a consumer, and how often: how a message that kills is found.

Theory of operation
-------------------
A consumer that vanishes takes a whole lease with it, and nobody can say which row did it: a
process that dies has no time to tell. So rows lost with a consumer come back uncounted, and each
remembers how often that happened. From the second loss on a row is a *suspect*: it is handed out
alone, to a consumer that holds nothing else. If that consumer vanishes too, there is only one row
that can have done it, and only then an attempt is counted; a consumer that is merely stuck and has
not reported the row as started did not fail at it. A neighbour, handed out alone, is
handled and forgotten here; it never gets nearer to the dead letters (design 5).

Rules
-----
1. A row is forgotten when it is settled, and when a consumer survived it (a retry that was asked
   for): whatever kills consumers does not ask.
2. Bounded by the rows that were handed out and are not settled; kept as ranges.
3. Pure memory. The lane asks, the snapshot keeps `rows`.
"""

from collections.abc import Iterable
from itertools import chain

from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet

SUSPECT_AFTER = 2  # Leases lost with a row before it is handed out alone.
SequenceRange = tuple[int, int]


class PoisonSuspects:
    """How often each unsettled row was lost; most lanes have none."""

    __slots__ = ("likely", "rows", "suspects")

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self.rows: IntervalMap[int] = IntervalMap()
        """Value: how many leases were lost with it."""
        self.suspects = RangeSet()
        self.likely = RangeSet()
        """Reported as started when they were lost; only said in memory, to find the one sooner."""
        for first, end, times in rows:
            self.set(first, end, times)

    def set(self, first: int, end: int, times: int) -> None:
        self.rows.put(first, end, times)
        if times >= SUSPECT_AFTER:
            self.suspects.add(first, end)

    def untouched(self, first: int, end: int, started: RangeSet) -> bool:
        """A suspect that its consumer had not begun with: not what kept the consumer."""
        return first in self.suspects and not started.overlap(first, end)

    def add(
        self, first: int, end: int, started: RangeSet | None = None
    ) -> list[tuple[int, int, int]]:
        """Rows are lost once more; returns them with how often that happened by now."""
        for a, b in started.overlap(first, end) if started is not None else ():
            self.likely.add(a, b)
        known = self.rows.overlap(first, end)
        found = [(a, b, times + 1) for a, b, times in known]
        found += [(a, b, 1) for a, b in RangeSet((a, b) for a, b, _ in known).gaps(first, end)]
        found.sort()
        for a, b, times in found:
            self.set(a, b, times)
        return found

    def forget(self, first: int, end: int) -> None:
        if self.rows.count:
            self.rows.cut(first, end)
            self.suspects.remove(first, end)
            self.likely.remove(first, end)

    def clear(self) -> None:
        self.rows.clear()
        self.suspects = RangeSet()
        self.likely = RangeSet()

    def unsuspected(self, first: int, end: int) -> list[SequenceRange]:
        """The parts of a range that may be handed out together with others."""
        return self.suspects.gaps(first, end) if len(self.suspects) else [(first, end)]

    def first_suspect(self, ready: IntervalMap[int]) -> tuple[int, int, int] | None:
        """A suspect that is ready, as a piece of one row with its attempt: the lowest of those
        that were started, else the lowest."""
        likely = (part for first, end in self.likely for part in self.suspects.overlap(first, end))
        for first, end in chain(likely, self.suspects):
            for a, _, attempt in ready.overlap(first, end):
                return a, a + 1, attempt
        return None


def was_alone(times: int) -> bool:
    """Was a row that is lost for the `times`-th time alone with its consumer?"""
    return times > SUSPECT_AFTER


def deaths(times: int) -> int:
    """How many consumers were lost while they held this row and nothing else."""
    return max(0, times - SUSPECT_AFTER)
