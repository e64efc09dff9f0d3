"""When waiting rows come again: their moments in order, a few bytes per row.

Theory of operation
-------------------
Moments lie in buckets of `BUCKET_MS`; a bucket has the ranges whose moment falls into it, as plain
numbers. A bucket is only a reminder: rows that were settled or moved meanwhile are still named in
it, so whoever takes ranges asks the lane what is true of them. A million rows that fail at once are
some hundred buckets, each cleared in parts: `take` gives out a bounded number of ranges.

Cost: 16 bytes per range, and one `Wait` for all rows that failed alike. Pure memory.
"""

from array import array
from heapq import heappop, heappush

from ternmq.broker.groups.lease import Wait

BUCKET_MS = 64


class _Bucket:
    """Ranges whose moments are near each other."""

    __slots__ = ("at", "earliest", "newest", "rows", "waits")

    def __init__(self) -> None:
        self.at = 0  # Numbers before this one are taken.
        self.rows = array("q")  # first, end, first, end ...
        self.waits: dict[Wait, Wait] = {}
        self.newest: Wait | None = None  # Of the last range: the next one may go on with it.
        self.earliest = 1 << 62


class RetryTimer:
    """When failed rows of one lane may be handed out again."""

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._order: list[int] = []  # Heap of the buckets' numbers.

    def add(self, first: int, end: int, wait: Wait) -> Wait:
        """Remember a range; returns a `Wait` that is shared by all rows that failed alike."""
        number = wait.due // BUCKET_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket()
            heappush(self._order, number)
        rows = bucket.rows
        wait = bucket.waits.setdefault(wait, wait)
        if bucket.newest is wait and rows[-1] == first and bucket.at < len(rows):
            rows[-1] = end
        else:
            rows.extend((first, end))
        bucket.newest = wait
        bucket.earliest = min(bucket.earliest, wait.due)
        return wait

    def next(self) -> int | None:
        """The first moment at which something may be due."""
        return self._buckets[self._order[0]].earliest if self._order else None

    def take(self, now: int, ranges_max: int) -> list[tuple[int, int]]:
        """Ranges that may be due, of the first bucket that may have such: at most so many. Those
        for which `belongs` still says so have to be added again, after the last `take`."""
        if not self._order:
            return []
        number = self._order[0]
        bucket = self._buckets[number]
        if bucket.earliest > now:
            return []
        taken = bucket.rows[bucket.at : bucket.at + 2 * ranges_max]
        bucket.at += len(taken)
        if bucket.at == len(bucket.rows):
            heappop(self._order)
            del self._buckets[number]
        return list(zip(taken[::2], taken[1::2], strict=True))

    @staticmethod
    def belongs(wait: Wait, now: int) -> bool:
        """Is a row that is not due yet in a bucket that is being cleared? Others come later."""
        return wait.due // BUCKET_MS <= now // BUCKET_MS

    def clear(self) -> None:
        self._buckets.clear()
        self._order.clear()
