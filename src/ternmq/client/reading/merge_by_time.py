"""Batches of several broker groups as one stream, the oldest first.

Each broker group has a feed that is asked for one piece ahead. The batch that was stored first goes
out next; for that every feed must show what it has, or be at its end. Who follows what comes cannot
wait for a feed that has nothing: one that has reached the end that was there at the start is no
longer waited for, and what arrives then goes out as it arrives. A feed may be added meanwhile.
Clocks of brokers differ a little, and so does this order; within a broker group it is exact.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ternmq.client.model.message import MessageBatch


class MergeSource:
    """What one broker group has: lists of batches, each with the sequence that follows it."""

    def __init__(
        self, name: str, pieces: AsyncIterator[tuple[list[MessageBatch], int]], *, end: int
    ) -> None:
        self.name = name
        self._pieces = pieces
        self._end = end
        self._position = -1
        self._waiting: deque[MessageBatch] = deque()
        self.asking: asyncio.Task[tuple[list[MessageBatch], int] | None] | None = None
        self.done = False

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    @property
    def behind(self) -> bool:
        """Nothing can be said before it has shown its next batch."""
        return not self._waiting and not self.done and self._position < self._end

    @property
    def stored_at_ms(self) -> int:
        delivery, _, _ = self._waiting[0].parts[0]
        return delivery.batch.stored_at_ms

    def ask(self) -> None:
        """For the next piece, unless one is here or on its way."""
        if not self._waiting and not self.done and self.asking is None:
            self.asking = asyncio.ensure_future(anext(self._pieces, None))

    def take(self) -> MessageBatch:
        return self._waiting.popleft()

    def collect(self) -> None:
        """What was asked for, if it is here; raises what went wrong."""
        if self.asking is None or not self.asking.done():
            return
        piece = self.asking.result()
        self.asking = None
        if piece is None:
            self.done = True
        else:
            batches, self._position = piece
            self._waiting.extend(batches)

    async def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()
            await asyncio.wait([self.asking])
        if hasattr(self._pieces, "aclose"):
            await self._pieces.aclose()


class MergeByTime:
    """All feeds of one reader."""

    def __init__(self) -> None:
        self._feeds: dict[str, MergeSource] = {}
        self._woken = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        return name in self._feeds

    def add(self, feed: MergeSource) -> None:
        self._feeds[feed.name] = feed
        self._woken.set()

    def wake(self) -> None:
        """Let the reader look whether there is a new feed."""
        self._woken.set()

    async def batches(self) -> AsyncIterator[MessageBatch | None]:
        """Until all feeds are done; None whenever somebody woke it."""
        try:
            while True:
                if self._woken.is_set():
                    self._woken.clear()
                    yield None
                feeds = list(self._feeds.values())
                for feed in feeds:
                    feed.collect()
                    feed.ask()
                ready = [feed for feed in feeds if feed.ready]
                if not ready and all(feed.done for feed in feeds):
                    return
                if ready and not any(feed.behind for feed in feeds):
                    yield min(ready, key=lambda feed: (feed.stored_at_ms, feed.name)).take()
                else:
                    await self._wait([feed.asking for feed in feeds if feed.asking is not None])
        finally:
            for feed in self._feeds.values():
                await feed.close()

    async def _wait(self, asked: list[asyncio.Task[tuple[list[MessageBatch], int] | None]]) -> None:
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait([*asked, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
