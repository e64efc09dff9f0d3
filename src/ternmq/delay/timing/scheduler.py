"""Drives the scheduling thread: schedules new messages, loads hours in time, writes checkpoints.

One thread, small steps, taken in turns: a large hour is loaded some megabytes at a time between
batches that arrive, so neither holds up the other. Hours are loaded when their first row is due
within the look-ahead, half an hour by default. Every few seconds a checkpoint; then hours that are
over and old parts of the message log are removed. A checkpoint may have thousands of files to sync:
some at a time, side by side, and scheduling and loading go on in between. An hour that cannot be
read is tried again from time to time and holds up no other. Every second it is seen whether the
files are still there.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.core.units import MINUTE_MS
from ternmq.delay.formats.decision import Decision
from ternmq.delay.hours.hour import Hour
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.hour_files import HourFiles
from ternmq.delay.timing.engine import Engine
from ternmq.storage.files.disk import File

log = get_logger()

LOOK_AHEAD_MAX_MS = 30 * MINUTE_MS
IDLE_S = 1.0
AFTER_ERROR_S = 1.0
LOOK_EACH_S = 1.0
UNLOAD_EACH_S = 10.0
UNREADABLE_AGAIN_S = 10.0
ENTRIES_MAX = 1_024  # Taken in by the event loop in one go.
SYNC_FILES = 64
SYNC_THREADS = 8
T = TypeVar("T")

DecideRows = Callable[[int, Decision], "asyncio.Future[TernError | None]"]
"""Write a decision about an hour; the result is None once it counts, or why it does not."""


def look_ahead_ms(hour_ms: int) -> int:
    """How long before its first row an hour is loaded."""
    return max(MINUTE_MS, min(hour_ms // 2, LOOK_AHEAD_MAX_MS))


class Scheduler:
    """Drives the scheduling thread."""

    def __init__(
        self, engine: Engine, *, decide: DecideRows, clock: Clock, checkpoint_interval_s: float
    ) -> None:
        self._engine = engine
        self._leading = engine.leading
        self._store = engine.store
        self._decide = decide
        self._clock = clock
        self._interval = checkpoint_interval_s
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tern-delay-schedule")
        self._syncers = ThreadPoolExecutor(SYNC_THREADS, thread_name_prefix="tern-delay-sync")
        self._more = asyncio.Event()
        self._progress = asyncio.Event()
        self._one_checkpoint = asyncio.Lock()
        self._asked: Counter[int] = Counter()
        self._schedule_at = 0.0
        self._unreadable: dict[int, tuple[float, TernError]] = {}
        """When to try an hour again, and what is wrong with it."""

    def wake(self) -> None:
        """Messages arrived, or a command asks for an hour."""
        self._more.set()

    async def scheduled(self) -> None:
        """Wait until everything that is safe now lies in its hours."""
        end = self._store.messages.safe_offset
        while self._engine.hours.scheduled_to < end:
            await self._next_progress()

    async def load(self, hour: Hour) -> bool:
        """Wait until an hour is loaded; it stays so until `let_go`. False: it is over, and gone.
        Raises when it cannot be read."""
        self._asked[hour.start] += 1
        self._engine.near.requested.add(hour.start)
        while not hour.loaded:
            if self._engine.hours.get(hour.start) is not hour:
                return False
            unreadable = self._unreadable.get(hour.start)
            if unreadable is not None:
                raise unreadable[1].copy()
            self._more.set()
            await self._next_progress()
        return True

    def let_go(self, hour: Hour) -> None:
        self._asked[hour.start] -= 1
        if self._asked[hour.start] <= 0:
            del self._asked[hour.start]
            self._engine.near.requested.discard(hour.start)

    async def _next_progress(self) -> None:
        self._progress.clear()
        try:
            async with asyncio.timeout(IDLE_S):
                await self._progress.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Steps until cancelled."""
        checkpoint_at = self._loop.time() + self._interval
        unload_at = self._loop.time() + UNLOAD_EACH_S
        look_at = self._loop.time()
        while True:
            try:
                busy = await self._step()
                if self._loop.time() >= look_at:
                    look_at = self._loop.time() + LOOK_EACH_S
                    await self._on_thread(self._store.look)
                if self._loop.time() >= checkpoint_at:
                    checkpoint_at = self._loop.time() + self._interval
                    await self.checkpoint()
                if self._loop.time() >= unload_at:
                    unload_at = self._loop.time() + UNLOAD_EACH_S
                    ahead = 2 * look_ahead_ms(self._engine.hour_ms)
                    self._engine.near.unload(self._clock.now_ms() + ahead)
            except TernError as error:
                log.error("no checkpoint could be written; trying again", reason=error.message)
            self._progress.set()
            if not busy:
                await self._idle(min(checkpoint_at, unload_at))

    async def _idle(self, until: float) -> None:
        self._more.clear()
        if self._waiting():
            return
        try:
            async with asyncio.timeout(max(0.01, min(IDLE_S, until - self._loop.time()))):
                await self._more.wait()
        except TimeoutError:
            pass

    def _waiting(self) -> bool:
        if self._loop.time() < self._schedule_at:
            return False
        return self._engine.hours.scheduled_to < self._store.messages.safe_offset

    async def _step(self) -> bool:
        """On a full disk nothing can be scheduled; what is stored is still loaded."""
        busy = False
        try:
            busy = await self._schedule()
        except TernError as error:
            log.error("scheduling failed; trying again", reason=error.message)
            self._schedule_at = self._loop.time() + AFTER_ERROR_S
        return await self._load() or busy

    async def _schedule(self) -> bool:
        engine = self._engine
        if not self._waiting():
            return False
        step = await self._on_thread(self._leading.schedule, engine.near.starts())
        for at in range(0, len(step.entries), ENTRIES_MAX):
            if at:
                await asyncio.sleep(0)
            engine.grew(step.entries[at : at + ENTRIES_MAX])
        engine.hours.scheduled_upto(step.upto, step.stored_at_ms)
        if step.error is not None:
            raise step.error
        return True

    async def _load(self) -> bool:
        engine, now = self._engine, self._loop.time()
        for start in [each for each, (again, _) in self._unreadable.items() if again <= now]:
            del self._unreadable[start]
        ahead = self._clock.now_ms() + look_ahead_ms(engine.hour_ms)
        hour = engine.near.wanted(ahead, self._unreadable)
        if hour is None:
            return False
        try:
            await self._load_some(hour)
        except TernError as error:
            log.error("an hour cannot be read", hour=hour.start, reason=error.message)
            self._unreadable[hour.start] = (now + UNREADABLE_AGAIN_S, error)
        return True

    async def _load_some(self, hour: Hour) -> None:
        near, leading = self._engine.near, self._leading
        if hour.index is None:
            book = hour.book
            if book is None:
                book = await self._on_thread(leading.read_book, hour.start, hour.rows)
            near.begin(hour, book)
        assert hour.index is not None
        near.loaded(hour, await self._on_thread(leading.load, hour.start, hour.index.end))

    async def bootstrap(self) -> BootstrapFiles:
        """The files as a new replica needs them; to be closed."""
        await self.checkpoint()
        return await self._on_thread(BootstrapFiles, self._store)

    async def checkpoint(self, *, clean: bool = False) -> None:
        """Write down how far everything is and remove what is over."""
        async with self._one_checkpoint:
            await self._checkpoint(clean=clean)

    async def _checkpoint(self, *, clean: bool) -> None:
        engine, leading, store = self._engine, self._leading, self._store
        if not clean:
            await self._leave_hours()
        upto, behind = await self._on_thread(leading.settling)
        await self._sync(store.dispatch_files, behind, go_on=not clean)
        store.checkpoints.settled(upto)
        now = engine.snapshot(self._clock.now_ms(), clean=clean)
        if store.failed is not None or (now == store.known and not clean):
            return
        behind = await self._on_thread(store.checkpoints.behind, now)
        await self._sync(store.schedule_files, behind, go_on=not clean)
        await self._on_thread(store.checkpoint, now)
        if store.known is now:
            removed = await self._on_thread(leading.remove, now.dropping)
            await self._on_thread(store.checkpoints.trim)
            engine.hours.dropped(removed)

    async def _leave_hours(self) -> None:
        """Decide that hours are over."""
        leaving = self._engine.leaving(self._clock.now_ms())
        if leaving and self._store.failed is None:
            await asyncio.wait([self._decide(start, decision) for start, decision in leaving])

    async def _sync(self, files: HourFiles, behind: list[int], *, go_on: bool) -> None:
        for at in range(0, len(behind), SYNC_FILES):
            some = behind[at : at + SYNC_FILES]
            await self._on_thread(files.sync_many, some, self._side_by_side)
            if go_on:
                await self._step()

    async def _on_thread(self, job: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._pool, job, *arguments)

    def _side_by_side(self, work: Callable[[File], None], files: Sequence[File]) -> None:
        tasks = [self._syncers.submit(work, file) for file in files]
        wait(tasks)
        for task in tasks:
            task.result()

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._syncers.shutdown(wait=True)
