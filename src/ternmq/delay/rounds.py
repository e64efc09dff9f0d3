"""Group commit: everything that waits is written by one call and made safe by one sync.

A `Rounds` has one thread, the only one that writes its files. Items gather on the event loop; a
round takes all of them: `stage` (loop, memory only), `write` (thread, blocks), `finish` (loop, with
the error if there was one). While a round is on the disk the next one gathers. The delay server has
two: one for messages that arrive, one for decisions about rows. Never blocks the loop.
"""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from ternmq.core.errors import DiskFailed, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.worker import start_worker

log = get_logger()

Item = TypeVar("Item")
Stage = TypeVar("Stage")


class Rounds(Generic[Item, Stage]):
    """One way to the disk."""

    def __init__(
        self,
        name: str,
        *,
        stage: Callable[[list[Item]], Stage],
        write: Callable[[Stage], None],
        finish: Callable[[list[Item], Stage | None, TernError | None], None],
    ) -> None:
        self._stage = stage
        self._write = write
        self._finish = finish
        self._loop = asyncio.get_running_loop()
        self._items: list[Item] = []
        self._busy = False
        self._kicked = False
        self._closed = False
        self.broken: TernError | None = None
        """Why nothing can be written until a restart: a bug in writing."""
        self._writer = start_worker(name)

    def put(self, item: Item) -> None:
        """Write it with the next round; `finish` says how it went."""
        if self._closed or self.broken is not None:
            error = self.broken or Unavailable("the delay server is stopping")
            self._loop.call_soon(self._tell, [item], None, error)
            return
        self._items.append(item)
        if not self._busy and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self._begin)

    async def close(self) -> None:
        """Write what waits, then stop the thread."""
        self._closed = True
        while self._busy or self._items:
            if not self._busy and not self._kicked:
                self._begin()
            await asyncio.sleep(0.001)
        await self._writer.close()

    def _begin(self) -> None:
        self._kicked = False
        if self._busy or not self._items:
            return
        items, self._items = self._items, []
        try:
            staged = self._stage(items)
        except TernError as error:
            self._tell(items, None, error)
            return
        except Exception as bug:
            log.exception("staging failed by a bug")
            self._tell(items, None, TernError(f"the delay server failed: {bug!r}; see its log"))
            return
        self._busy = True
        self._writer.put(lambda: self._run(items, staged))

    def _run(self, items: list[Item], staged: Stage) -> None:
        error: TernError | None = None
        try:
            self._write(staged)
        except TernError as failed:
            error = failed
        except Exception as bug:
            log.exception("writing failed by a bug")
            error = DiskFailed(f"writing failed by a bug: {bug!r}; restart to recover")
            self.broken = error
        self._loop.call_soon_threadsafe(self._done, items, staged, error)

    def _done(self, items: list[Item], staged: Stage, error: TernError | None) -> None:
        self._busy = False
        self._tell(items, staged, error)
        if self._items:
            self._begin()

    def _tell(self, items: list[Item], staged: Stage | None, error: TernError | None) -> None:
        """Whoever is told must not be able to stop the rounds: a bug there costs only itself."""
        try:
            self._finish(items, staged, error)
        except Exception:
            log.exception("telling about a round failed by a bug")
