"""Ranges of whole numbers that carry a value: sorted, disjoint, joined where values are equal.

What a `RangeSet` is to "acked", a `PieceMap` is to "ready again, third attempt": each range
`[first, end)` has one value, and setting or clearing a range cuts its neighbours where needed.
Pure memory; O(log n) to find, plus the ranges touched.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class PieceMap(Generic[V]):
    """Numbers as ranges with a value each; `count` is kept, not computed."""

    __slots__ = ("_ends", "_firsts", "_values", "count")

    def __init__(self, pieces: Iterable[tuple[int, int, V]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        self._values: list[V] = []
        self.count = 0
        for first, end, value in pieces:
            self.put(first, end, value)

    def __iter__(self) -> Iterator[tuple[int, int, V]]:
        return zip(self._firsts, self._ends, self._values, strict=True)

    def __len__(self) -> int:
        """How many ranges, not how many numbers."""
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PieceMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PieceMap({list(self)!r})"

    def get(self, number: int) -> V | None:
        """The value of one number, if it has one."""
        at = bisect_right(self._firsts, number) - 1
        return self._values[at] if at >= 0 and number < self._ends[at] else None

    def overlap(self, first: int, end: int) -> list[tuple[int, int, V]]:
        """The pieces of `[first, end)`, left where they are."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        return [
            (max(self._firsts[at], first), min(self._ends[at], end), self._values[at])
            for at in range(low, high)
        ]

    def put(self, first: int, end: int, value: V) -> None:
        """Give `[first, end)` this value, whatever it had before."""
        if first >= end:
            return
        self.cut(first, end)
        at = bisect_left(self._firsts, first)
        self.count += end - first
        if at < len(self._firsts) and self._firsts[at] == end and self._values[at] == value:
            end = self._ends[at]
            self._drop(at)
        if at > 0 and self._ends[at - 1] == first and self._values[at - 1] == value:
            self._ends[at - 1] = end
            return
        self._firsts.insert(at, first)
        self._ends.insert(at, end)
        self._values.insert(at, value)

    def cut(self, first: int, end: int) -> list[tuple[int, int, V]]:
        """Take `[first, end)` out; return the pieces that were there."""
        low = bisect_right(self._ends, first)
        high = bisect_left(self._firsts, end)
        if first >= end or low >= high:
            return []
        if high - low == 1:
            return [self._cut_one(low, first, end)]
        taken = [
            (max(a, first), min(b, end), value)
            for a, b, value in zip(
                self._firsts[low:high], self._ends[low:high], self._values[low:high], strict=True
            )
        ]
        kept: list[tuple[int, int, V]] = []
        if self._firsts[low] < first:
            kept.append((self._firsts[low], first, self._values[low]))
        if self._ends[high - 1] > end:
            kept.append((end, self._ends[high - 1], self._values[high - 1]))
        self._firsts[low:high] = [piece[0] for piece in kept]
        self._ends[low:high] = [piece[1] for piece in kept]
        self._values[low:high] = [piece[2] for piece in kept]
        self.count -= sum(b - a for a, b, _ in taken)
        return taken

    def _cut_one(self, at: int, first: int, end: int) -> tuple[int, int, V]:
        """The same where only one piece is touched, which is mostly so."""
        low, high, value = self._firsts[at], self._ends[at], self._values[at]
        if low >= first and high <= end:
            self._drop(at)
            self.count -= high - low
            return low, high, value
        if low < first:
            self._ends[at] = first
            if high > end:
                self._firsts.insert(at + 1, end)
                self._ends.insert(at + 1, high)
                self._values.insert(at + 1, value)
        else:
            self._firsts[at] = end
        first, end = max(low, first), min(high, end)
        self.count -= end - first
        return first, end, value

    def take_first(self, count: int) -> list[tuple[int, int, V]]:
        """Remove and return up to `count` of the lowest numbers."""
        taken: list[tuple[int, int, V]] = []
        at = 0
        while count > 0 and at < len(self._firsts):
            first, end, value = self._firsts[at], self._ends[at], self._values[at]
            if end - first > count:
                taken.append((first, first + count, value))
                self._firsts[at] = first + count
                break
            taken.append((first, end, value))
            count -= end - first
            at += 1
        del self._firsts[:at], self._ends[:at], self._values[:at]
        self.count -= sum(b - a for a, b, _ in taken)
        return taken

    def clear(self) -> None:
        self._firsts.clear()
        self._ends.clear()
        self._values.clear()
        self.count = 0

    def _drop(self, at: int) -> None:
        del self._firsts[at], self._ends[at], self._values[at]
