"""Ranges of whole numbers that carry a value: sorted, disjoint, joined where values are equal.

What a `RangeSet` is to "acked", a `IntervalMap` is to "ready again, third attempt": each range
`[first, end)` has one value, and setting or clearing a range cuts its neighbours where needed.

Theory of operation
-------------------
Pieces lie in blocks of at most `BLOCK_MAX`, blocks in a list with the first number of each beside
it. Most maps are one block. A million single rows (everything of a group failed at once) are a
thousand blocks, and a change anywhere moves what is in one block, not what follows it: the cost is
O(log n) to find, plus one block, plus the pieces touched. A piece costs about 24 bytes beside its
value. Pure memory.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

V = TypeVar("V")

BLOCK_MAX = 1024
BEYOND = 1 << 63  # Larger than every number.


class _IntervalBlock(Generic[V]):
    """Neighbouring pieces, as columns; never empty while it is in a map."""

    __slots__ = ("ends", "firsts", "values")

    def __init__(self, firsts: "array[int]", ends: "array[int]", values: list[V]) -> None:
        self.firsts = firsts
        self.ends = ends
        self.values = values

    def insert(self, at: int, first: int, end: int, value: V) -> None:
        self.firsts.insert(at, first)
        self.ends.insert(at, end)
        self.values.insert(at, value)

    def drop(self, at: int) -> None:
        del self.firsts[at], self.ends[at], self.values[at]

    def split(self, at: int) -> "_IntervalBlock[V]":
        """Keep the pieces before `at`; a new block has the others."""
        rest = _IntervalBlock(self.firsts[at:], self.ends[at:], self.values[at:])
        del self.firsts[at:], self.ends[at:], self.values[at:]
        return rest


class IntervalMap(Generic[V]):
    """Numbers as ranges with a value each; `count` is kept, not computed."""

    __slots__ = ("_blocks", "_heads", "count")

    def __init__(self, pieces: Iterable[tuple[int, int, V]] = ()) -> None:
        self._blocks: list[_IntervalBlock[V]] = []
        self._heads: list[int] = []  # The first number of each block.
        self.count = 0
        for first, end, value in pieces:
            self.put(first, end, value)

    def __iter__(self) -> Iterator[tuple[int, int, V]]:
        for block in self._blocks:
            yield from zip(block.firsts, block.ends, block.values, strict=True)

    def __len__(self) -> int:
        """How many ranges, not how many numbers."""
        blocks = self._blocks
        if len(blocks) == 1:
            return len(blocks[0].firsts)
        return sum(len(block.firsts) for block in blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalMap) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PieceMap({list(self)!r})"

    def bounds(self) -> tuple[int, int]:
        """The first number and one past the last; of a map that is not empty."""
        return self._heads[0], self._blocks[-1].ends[-1]

    def get(self, number: int) -> V | None:
        """The value of one number, if it has one."""
        within = bisect_right(self._heads, number) - 1
        if within < 0:
            return None
        block = self._blocks[within]
        at = bisect_right(block.firsts, number) - 1
        return block.values[at] if number < block.ends[at] else None

    def end_of(self, number: int) -> int:
        """Where the piece with this number ends; the number itself if it has no value."""
        within = bisect_right(self._heads, number) - 1
        if within < 0:
            return number
        block = self._blocks[within]
        return max(number, block.ends[bisect_right(block.firsts, number) - 1])

    def overlap(self, first: int, end: int) -> list[tuple[int, int, V]]:
        """The pieces of `[first, end)`, left where they are."""
        found: list[tuple[int, int, V]] = []
        low, high = self._within(first, end)
        for block in self._blocks[low:high]:
            firsts, ends, values = block.firsts, block.ends, block.values
            found += [
                (max(firsts[at], first), min(ends[at], end), values[at])
                for at in range(bisect_right(ends, first), bisect_left(firsts, end))
            ]
        return found

    def run(self, first: int, count: int) -> list[tuple[int, int, V]]:
        """At most so many pieces from this number on: for who looks at all of them, bit by bit."""
        found: list[tuple[int, int, V]] = []
        index = max(0, bisect_right(self._heads, first) - 1)
        while index < len(self._blocks) and len(found) < count:
            block = self._blocks[index]
            low = bisect_right(block.ends, first)
            part = slice(low, low + count - len(found))
            found += zip(block.firsts[part], block.ends[part], block.values[part], strict=True)
            index += 1
        if found and found[0][0] < first:
            found[0] = (first, *found[0][1:])
        return found

    def put(self, first: int, end: int, value: V) -> None:
        """Give `[first, end)` this value, whatever it had before."""
        if first >= end:
            return
        heads = self._heads
        if not heads:
            self._blocks.append(_IntervalBlock(array("q", (first,)), array("q", (end,)), [value]))
            heads.append(first)
            self.count += end - first
            return
        index = max(0, bisect_right(heads, first) - 1)
        block = self._blocks[index]
        firsts, ends, values = block.firsts, block.ends, block.values
        at = bisect_right(ends, first)  # The first piece that ends beyond `first`.
        following = firsts[at] if at < len(firsts) else self._head_after(index)
        if following < end:
            self.cut(first, end)
            self.put(first, end, value)
            return
        self.count += end - first
        if following == end:
            end = self._joined(index, at, end, value)
        if at > 0 and ends[at - 1] == first and values[at - 1] == value:
            ends[at - 1] = end
            return
        firsts.insert(at, first)
        ends.insert(at, end)
        values.insert(at, value)
        if at == 0:
            heads[index] = first
        if len(firsts) > BLOCK_MAX:
            self._divide(index)

    def cut(self, first: int, end: int) -> list[tuple[int, int, V]]:
        """Take `[first, end)` out; return the pieces that were there."""
        if len(self._heads) == 1 and first < end:
            return self._cut_block(0, first, end)
        low, high = self._within(first, end)
        if high - low == 1:
            return self._cut_block(low, first, end)
        parts = [self._cut_block(index, first, end) for index in range(high - 1, low - 1, -1)]
        return [piece for part in reversed(parts) for piece in part]

    def clear(self) -> None:
        self._blocks.clear()
        self._heads.clear()
        self.count = 0

    def _within(self, first: int, end: int) -> tuple[int, int]:
        """The blocks that may hold parts of a range."""
        if first >= end:
            return 0, 0
        return max(0, bisect_right(self._heads, first) - 1), bisect_left(self._heads, end)

    def _cut_block(self, index: int, first: int, end: int) -> list[tuple[int, int, V]]:
        """Take a range out of one block; the block goes if that empties it."""
        block = self._blocks[index]
        firsts, ends = block.firsts, block.ends
        low = bisect_right(ends, first)
        high = bisect_left(firsts, end)
        if low >= high:
            return []
        if high - low == 1:
            taken = [self._cut_one(block, low, first, end)]
        else:
            taken = self._cut_many(block, low, high, first, end)
        for a, b, _ in taken:
            self.count -= b - a
        if not firsts:
            del self._blocks[index], self._heads[index]
            return taken
        self._heads[index] = firsts[0]
        if len(firsts) > BLOCK_MAX:
            self._divide(index)
        return taken

    def _cut_one(
        self, block: _IntervalBlock[V], at: int, first: int, end: int
    ) -> tuple[int, int, V]:
        """Where only one piece is touched, which is mostly so."""
        low, high, value = block.firsts[at], block.ends[at], block.values[at]
        if low >= first and high <= end:
            block.drop(at)
            return low, high, value
        if low < first:
            block.ends[at] = first
            if high > end:
                block.insert(at + 1, end, high, value)
                return first, end, value
            return first, high, value
        block.firsts[at] = end
        return low, end, value

    def _cut_many(
        self, block: _IntervalBlock[V], low: int, high: int, first: int, end: int
    ) -> list[tuple[int, int, V]]:
        firsts, ends, values = block.firsts, block.ends, block.values
        left, right = firsts[low], ends[high - 1]
        taken = list(zip(firsts[low:high], ends[low:high], values[low:high], strict=True))
        taken[0] = (max(left, first), taken[0][1], taken[0][2])
        taken[-1] = (taken[-1][0], min(right, end), taken[-1][2])
        del firsts[low:high], ends[low:high], values[low:high]
        if right > end:
            block.insert(low, end, right, taken[-1][2])
        if left < first:
            block.insert(low, left, first, taken[0][2])
        return taken

    def _head_after(self, index: int) -> int:
        """Where the block after this one begins; beyond all numbers after the last."""
        return self._heads[index + 1] if index + 1 < len(self._heads) else BEYOND

    def _joined(self, index: int, at: int, end: int, value: V) -> int:
        """Take out the piece that begins at `end` if it has the same value; where that one ends.
        It would stand at `at` of a block, or begin the next one."""
        block = self._blocks[index]
        if at < len(block.firsts):
            if block.firsts[at] == end and block.values[at] == value:
                end = block.ends[at]
                block.drop(at)
        elif index + 1 < len(self._blocks) and self._heads[index + 1] == end:
            following = self._blocks[index + 1]
            if following.values[0] == value:
                end = following.ends[0]
                following.drop(0)
                if following.firsts:
                    self._heads[index + 1] = following.firsts[0]
                else:
                    del self._blocks[index + 1], self._heads[index + 1]
        return end

    def _divide(self, index: int) -> None:
        """A block that grew too long becomes two; the last one is left full: rows mostly ascend."""
        last = index + 1 == len(self._blocks)
        rest = self._blocks[index].split(BLOCK_MAX if last else BLOCK_MAX // 2)
        self._blocks.insert(index + 1, rest)
        self._heads.insert(index + 1, rest.firsts[0])
