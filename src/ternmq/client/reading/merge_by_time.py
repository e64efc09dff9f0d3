"""Merges the batches of several broker groups into one stream, oldest first.

Each broker group has a source that is asked for one page ahead. The batch that was stored first
goes out next; for that every source must show what it has, or be at its end. Who follows what comes
cannot wait for a source that has nothing: one that has reached the end that was there at the start
is no longer waited for, and what arrives then goes out as it arrives. A source may be added
meanwhile. Clocks of brokers differ a little, and so does this order; within a broker group it is
exact.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ternmq.client.model.message import MessageBatch


class MergeSource:
    """What one broker group has: lists of batches, each with the sequence that follows it."""

    def __init__(
        self, name: str, pages: AsyncIterator[tuple[list[MessageBatch], int]], *, end: int
    ) -> None:
        self.name = name
        self._pages = pages
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
        """For the next page, unless one is here or on its way."""
        if not self._waiting and not self.done and self.asking is None:
            self.asking = asyncio.ensure_future(anext(self._pages, None))

    def take(self) -> MessageBatch:
        return self._waiting.popleft()

    def collect(self) -> None:
        """What was asked for, if it is here; raises what went wrong."""
        if self.asking is None or not self.asking.done():
            return
        page = self.asking.result()
        self.asking = None
        if page is None:
            self.done = True
        else:
            batches, self._position = page
            self._waiting.extend(batches)

    async def close(self) -> None:
        if self.asking is not None:
            self.asking.cancel()
            await asyncio.wait([self.asking])
        if hasattr(self._pages, "aclose"):
            await self._pages.aclose()


class MergeByTime:
    """All sources of one reader."""

    def __init__(self) -> None:
        self._sources: dict[str, MergeSource] = {}
        self._woken = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def add(self, source: MergeSource) -> None:
        self._sources[source.name] = source
        self._woken.set()

    def wake(self) -> None:
        """Let the reader look whether there is a new source."""
        self._woken.set()

    async def batches(self) -> AsyncIterator[MessageBatch | None]:
        """All batches until the sources are done; None after each call of `wake`."""
        try:
            while True:
                if self._woken.is_set():
                    self._woken.clear()
                    yield None
                sources = list(self._sources.values())
                for source in sources:
                    source.collect()
                    source.ask()
                ready = [source for source in sources if source.ready]
                if not ready and all(source.done for source in sources):
                    return
                if ready and not any(source.behind for source in sources):
                    yield min(ready, key=lambda source: (source.stored_at_ms, source.name)).take()
                else:
                    await self._wait(
                        [source.asking for source in sources if source.asking is not None]
                    )
        finally:
            for source in self._sources.values():
                await source.close()

    async def _wait(self, asked: list[asyncio.Task[tuple[list[MessageBatch], int] | None]]) -> None:
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait([*asked, woken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
