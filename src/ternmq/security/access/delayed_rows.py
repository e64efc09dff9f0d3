"""How many messages for later a user has at a delay server; pure, moments are handed in.

Counted when they are accepted, by the time at which they are due, in buckets of ten seconds: so
what is due counts no more, and nobody has to say so. A message that was cancelled or moved counts
until it was due at first. Forgotten with the server's memory; never counted without a quota.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

BUCKET_MS = 10_000


class DelayedRows:
    """Delayed rows of one user."""

    __slots__ = ("_rows", "_times", "there")

    def __init__(self) -> None:
        self.there = 0
        self._rows: dict[int, int] = {}
        self._times: list[int] = []

    def pass_to(self, now_ms: int) -> None:
        """What was due before counts no more."""
        while self._times and self._times[0] <= now_ms:
            self.there -= self._rows.pop(heappop(self._times))

    def add(self, due_ms: Iterable[int]) -> None:
        for due in due_ms:
            end = (due // BUCKET_MS + 1) * BUCKET_MS
            if end not in self._rows:
                self._rows[end] = 0
                heappush(self._times, end)
            self._rows[end] += 1
            self.there += 1
