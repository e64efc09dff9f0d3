"""A set of whole numbers kept as sorted, disjoint, non-touching half-open ranges.

Progress is ranges: "acked 0..1000" is one entry however many messages it covers. Lies in a
`IntervalMap`, so a change costs O(log n) to find plus the ranges it touches, also among a million
of them. Never holds empty ranges. Pure memory.
"""

from collections.abc import Iterable, Iterator

from ternmq.core.interval_map import IntervalMap


class RangeSet:
    """Numbers as ranges `[first, end)`; `count` is kept, not computed."""

    __slots__ = ("_pieces",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._pieces: IntervalMap[None] = IntervalMap()
        for first, end in ranges:
            self._pieces.put(first, end, None)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for first, end, _ in self._pieces:
            yield first, end

    def __len__(self) -> int:
        """How many ranges, not how many numbers."""
        return len(self._pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, number: int) -> bool:
        return self._pieces.end_of(number) > number

    def __repr__(self) -> str:
        return f"RangeSet({list(self)!r})"

    @property
    def count(self) -> int:
        return self._pieces.count

    def first(self) -> int:
        return self._pieces.bounds()[0]

    def end(self) -> int:
        return self._pieces.bounds()[1]

    def add(self, first: int, end: int) -> int:
        """Put `[first, end)` in; return how many numbers were new."""
        before = self._pieces.count
        self._pieces.put(first, end, None)
        return self._pieces.count - before

    def remove(self, first: int, end: int) -> int:
        """Take `[first, end)` out; return how many numbers were there."""
        before = self._pieces.count
        self._pieces.cut(first, end)
        return before - self._pieces.count

    def overlap(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of `[first, end)` that are in the set."""
        return [(a, b) for a, b, _ in self._pieces.overlap(first, end)]

    def first_gap(self, number: int) -> int:
        """The lowest number from `number` on that is not in the set."""
        return self._pieces.end_of(number)

    def gaps(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of `[first, end)` that are not in the set."""
        found: list[tuple[int, int]] = []
        at = first
        for a, b, _ in self._pieces.overlap(first, end):
            if a > at:
                found.append((at, a))
            at = b
        if at < end:
            found.append((at, end))
        return found
