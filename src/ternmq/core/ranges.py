"""A set of whole numbers kept as sorted, disjoint, non-touching half-open ranges.

Progress is ranges: "acked 0..1000" is one entry however many messages it covers. All operations
are O(log n) to find plus the ranges they touch. Never holds empty ranges. Pure memory.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """Numbers as ranges `[first, end)`; `count` is kept, not computed."""

    __slots__ = ("_ends", "_firsts", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self.count = 0
        for first, end in ranges:
            self.add(first, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._ends, strict=True)

    def __len__(self) -> int:
        """How many ranges, not how many numbers."""
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)!r})"

    def first(self) -> int:
        return self._firsts[0]

    def end(self) -> int:
        return self._ends[-1]

    def add(self, first: int, end: int) -> int:
        """Put `[first, end)` in; return how many numbers were new."""
        if first >= end:
            return 0
        low = bisect_left(self._ends, first)  # The first range that touches or follows.
        high = bisect_right(self._firsts, end)  # One past the last range that touches.
        held = 0
        if low < high:
            for at in range(low, high):
                held += max(0, min(self._ends[at], end) - max(self._firsts[at], first))
            new_first, new_end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        else:
            new_first, new_end = first, end
        self._firsts[low:high] = [new_first]
        self._ends[low:high] = [new_end]
        added = end - first - held
        self.count += added
        return added

    def remove(self, first: int, end: int) -> int:
        """Take `[first, end)` out; return how many numbers were there."""
        if first >= end:
            return 0
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        if low >= high:
            return 0
        firsts: list[int] = []
        ends: list[int] = []
        removed = 0
        for at in range(low, high):
            a, b = self._firsts[at], self._ends[at]
            removed += min(b, end) - max(a, first)
            if a < first:
                firsts.append(a)
                ends.append(first)
            if b > end:
                firsts.append(end)
                ends.append(b)
        self._firsts[low:high] = firsts
        self._ends[low:high] = ends
        self.count -= removed
        return removed

    def overlap(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of `[first, end)` that are in the set."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        return [(max(self._firsts[at], first), min(self._ends[at], end)) for at in range(low, high)]

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of `[first, end)` that are not in the set."""
        found: list[tuple[int, int]] = []
        at = first
        for a, b in self.overlap(first, end):
            if a > at:
                found.append((at, a))
            at = b
        if at < end:
            found.append((at, end))
        return found
