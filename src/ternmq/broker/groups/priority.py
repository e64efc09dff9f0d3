"""Priority: higher ones first, within a window of ready rows, first come first served inside one.

Theory of operation
-------------------
New rows are known up to `WINDOW` ahead: they stand among the lane's returned ones, and the rows
with a priority are noted by rank. A pull takes the ready rows of the highest rank first, lowest
sequences first; a rank of 0 needs no note. A row that comes back (a retry, a lost consumer) still
has its rank. Beyond the window nothing is known, so a flood of low priorities delays a high one by
at most a window; there is no other promise to the low ones.

Batches whose highest priority is 0 are not even read. Which rows are ready is the lane's business;
ranks can be built again from the lane and the messages at any moment.
"""

from collections.abc import Iterator
from itertools import groupby

from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import Piece
from ternmq.core.range_set import RangeSet
from ternmq.storage.consume.entry import ConsumeEntry

WINDOW = 10_000


class PriorityRanks:
    """The priorities of one lane's known rows."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._generation = lane.generation
        self._ranks: dict[int, RangeSet] = {}
        self._above = RangeSet()  # All rows with a rank.
        self._fresh = RangeSet()  # Known and never handed out.
        self.scanned = min(lane.done.first_gap(lane.start), lane.next)
        """Rows below are known or settled."""

    def fits(self, lane: Lane) -> bool:
        """Is this still about the same lane, at the same generation?"""
        return lane is self._lane and lane.generation == self._generation

    @property
    def full(self) -> bool:
        if self._fresh.count >= WINDOW:  # Some may be gone by another way than a hand-out.
            overlap = self._lane.returned.overlap
            self._fresh = RangeSet((a, b) for f, e in self._fresh for a, b, _ in overlap(f, e))
        return self._fresh.count >= WINDOW

    def learn(self, entry: ConsumeEntry, priorities: list[int]) -> None:
        """The rows of a batch; no priorities: all are 0."""
        base, end = entry.base_sequence, entry.base_sequence + entry.count
        at = max(base, self.scanned)
        for first, stop, attempt in self._lane.returned.overlap(at, end):
            if attempt == 1:
                self._fresh.add(first, stop)
        for rank, rows in groupby(range(len(priorities)), key=priorities.__getitem__):
            run = list(rows)
            if rank:
                for first, stop in self._lane.done.gaps(base + run[0], base + run[-1] + 1):
                    self._ranks.setdefault(rank, RangeSet()).add(first, stop)
                    self._above.add(first, stop)
        self.scanned = end

    def pick(self, rows_max: int) -> list[Piece]:
        """Ready rows, highest rank first; retries take at most half while new ones are ready."""
        taken: list[Piece] = []
        retried: list[Piece] = []
        left, again_left = rows_max, max(1, rows_max // 2)
        for first, end, attempt in self._ready():
            stop = min(end, first + (left if attempt == 1 else min(left, again_left)))
            if stop > first:
                taken.append((first, stop, attempt))
                left -= stop - first
                again_left -= stop - first if attempt > 1 else 0
            if stop < end and left:
                retried.append((stop, end, attempt))
            if not left:
                break
        for first, end, attempt in retried:
            if left:
                stop = min(end, first + left)
                taken.append((first, stop, attempt))
                left -= stop - first
        return taken

    def handed_out(self, pieces: list[Piece]) -> None:
        for first, end, _ in pieces:
            self._fresh.remove(first, end)

    def _ready(self) -> Iterator[Piece]:
        lane = self._lane
        for rank in sorted(self._ranks, reverse=True):
            settled: list[tuple[int, int]] = []
            try:
                for first, end in list(self._ranks[rank]):
                    settled += lane.done.overlap(first, end)
                    for a, b, attempt in lane.returned.overlap(first, end):
                        yield from ((x, y, attempt) for x, y in lane.poison.unsuspected(a, b))
            finally:  # Also when enough was found: what is settled is not looked at again.
                self._forget(rank, settled)
        for first, end, attempt in lane.returned:
            for a, b in self._above.gaps(first, min(end, max(first, self.scanned))):
                yield from ((x, y, attempt) for x, y in lane.poison.unsuspected(a, b))

    def _forget(self, rank: int, settled: list[tuple[int, int]]) -> None:
        rows = self._ranks[rank]
        for first, end in settled:
            rows.remove(first, end)
            self._above.remove(first, end)
        if not len(rows):
            del self._ranks[rank]
