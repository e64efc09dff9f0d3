"""What a replica makes of the safe parts of both logs, so that it can lead at any moment.

The bytes come by `replication.intake`; here, on a thread of its own, they become schedule logs and
dispatch logs, with checkpoints, and what is no longer needed is removed. No hour is loaded and no
wheel turns: leading is opening the store again, which finds nearly everything done. What cannot be
read or written ends it: the store has `failed`, and another member has to be the one to lead.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.delay.store.store import DelayStore

log = get_logger()

IDLE_S = 1.0
AFTER_ERROR_S = 1.0
LOOK_EACH_S = 1.0
T = TypeVar("T")


class Standby:
    """Drives the store of a replica."""

    def __init__(self, store: DelayStore, *, clock: Clock, checkpoint_interval_s: float) -> None:
        self._store = store
        self._clock = clock
        self._interval = checkpoint_interval_s
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tern-delay-schedule")
        self._more = asyncio.Event()

    def wake(self) -> None:
        """More is safe than before."""
        self._more.set()

    async def run(self) -> None:
        """Steps until cancelled."""
        checkpoint_at = self._clock.monotonic() + self._interval
        look_at = self._clock.monotonic()
        while True:
            busy = False
            try:
                self._more.clear()
                busy = await self._on_thread(self._store.follow_some)
                if self._clock.monotonic() >= look_at:
                    look_at = self._clock.monotonic() + LOOK_EACH_S
                    await self._on_thread(self._store.look)
                if self._clock.monotonic() >= checkpoint_at:
                    checkpoint_at = self._clock.monotonic() + self._interval
                    await self.checkpoint()
            except Corrupt as error:
                log.error("a replica cannot go on like its master", reason=error.message)
                self._store.give_up(error)
            except TernError as error:
                log.error("a replica cannot write what is safe", reason=error.message)
                await asyncio.sleep(AFTER_ERROR_S)
            if not busy:
                await self._idle(checkpoint_at)

    async def _idle(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.01, min(IDLE_S, until - self._clock.monotonic()))):
                await self._more.wait()
        except TimeoutError:
            pass

    async def checkpoint(self, *, clean: bool = False) -> None:
        """Write down how far everything is and remove what is over."""
        store = self._store
        await self._on_thread(store.settle)
        if store.messages.synced_offset < store.messages.safe_offset:
            return  # It would say more than is true after a power cut.
        now = store.snapshot(clean=clean)
        if now == store.known and not clean:
            return
        await self._on_thread(store.checkpoint, now)
        if store.known is now:
            removed = await self._on_thread(store.remove, now.dropping)
            await self._on_thread(store.trim)
            store.dropping.difference_update(removed)

    async def _on_thread(self, job: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._pool, job, *arguments)

    async def close(self) -> None:
        """A last checkpoint; the store is closed by its owner."""
        try:
            await self.checkpoint(clean=True)
        except TernError as error:
            log.error("could not close cleanly; the next start recovers", error=error.message)
        self._pool.shutdown(wait=True)
