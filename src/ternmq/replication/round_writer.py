"""The writer thread of a server and its turns: one round after the other, lone jobs in between.

A round is written by the thread (the only one that writes these logs) and finished on the event
loop; then the next one is asked for. Whatever comes while a round is on the disk gathers, so the
disk sets the pace, and a slow disk makes larger rounds, not longer queues. Jobs that must be alone
with the files (checkpoints, cuts, late syncs) go before the next round.

What a round is, and what its end means, is its source's: `group_commit` for a server that leads,
`following.replica_writer` for one that copies. Never blocks the loop; never tries a write twice. A
bug in a write is told as an error like any other, and is remembered (`broken`).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ternmq.core.errors import DiskFailed, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.worker import Job, start_worker

log = get_logger()

IDLE_S = 0.001
Then = Callable[[TernError | None], None]
"""Hears on the loop how a job went."""


class WriterRound(Protocol):
    """What one turn of the thread puts on the disk."""

    def write(self) -> None:
        """On the thread; blocks. Keeps its errors for `finish`."""

    def finish(self) -> None:
        """On the loop."""


class RoundSource(Protocol):
    """Where rounds come from."""

    def next_round(self) -> WriterRound | None:
        """On the loop: everything that can be written now; None: nothing."""

    @property
    def has_round(self) -> bool:
        """Something waits that the thread has to write before it may stop."""


def needs_restart(bug: Exception) -> TernError:
    """What a bug means to a server that leads."""
    return DiskFailed(f"writing failed by a bug: {bug!r}; restart to recover")


class RoundWriter:
    """One writer thread: rounds and single jobs take turns on it."""

    def __init__(
        self,
        name: str,
        source: RoundSource,
        bug_error: Callable[[Exception], TernError] = needs_restart,
    ) -> None:
        """`bug_error` makes the error that a bug in a write is told as."""
        self._source = source
        self._bug_error = bug_error
        self._loop = asyncio.get_running_loop()
        self._thread = start_worker(name)
        self._jobs: deque[_LoneJob] = deque()
        self._kicked = False
        self._closed = False
        self._late_sync: asyncio.TimerHandle | None = None
        self.busy = False
        """The thread has something to do."""
        self.broken: TernError | None = None
        """A bug in writing: nobody knows what is on the disk."""

    def kick(self) -> None:
        """Begin at the end of this turn of the loop, so that its whole turn gets in."""
        if not self.busy and not self._kicked:
            self._kicked = True
            self._loop.call_soon(self.begin)

    def alone(self, job: Job, then: Then | None = None) -> asyncio.Future[None]:
        """Run a blocking job while nothing is written; `then` hears of it before the future."""
        future: asyncio.Future[None] = self._loop.create_future()
        if self._closed:
            settle(future, Unavailable("this server is stopping"))
            return future
        self._jobs.append(_LoneJob(self, job, then, future))
        self.kick()
        return future

    def sync_later(self, delay_s: float, job: Job, then: Then) -> None:
        """For bytes that nobody waits for: run this alone after a while, once for all of them."""
        if self._late_sync is None:
            self._late_sync = self._loop.call_later(delay_s, self._sync_now, job, then)

    def forget_sync(self) -> None:
        if self._late_sync is not None:
            self._late_sync.cancel()
            self._late_sync = None

    def _sync_now(self, job: Job, then: Then) -> None:
        self._late_sync = None
        self._jobs.append(_LoneJob(self, job, then, None))
        self.kick()

    def attempt(self, job: Job) -> TernError | None:
        """On the thread: run a write. A bug in it must not leave anybody without an answer."""
        try:
            job()
        except TernError as error:
            return error
        except Exception as bug:
            return self.fail_by(bug)
        return None

    def fail_by(self, bug: Exception) -> TernError:
        """From here on nobody knows what is on the disk, or what of it is seen."""
        log.error("writing failed by a bug", exc_info=bug)
        self.broken = self._bug_error(bug)
        return self.broken

    async def drain(self) -> None:
        """Until everything that can be written is."""
        self.forget_sync()
        while self.busy or self._jobs or self._source.has_round:
            self.kick()
            await asyncio.sleep(IDLE_S)

    async def close(self) -> None:
        """Stop the thread, after `drain`."""
        self.forget_sync()
        self._closed = True
        await self._thread.close()

    def begin(self) -> None:
        """Begin at once, unless the thread has something to do."""
        self._kicked = False
        if self.busy or self._closed:
            return
        try:
            now = self._jobs.popleft() if self._jobs else self._source.next_round()
        except Exception as bug:
            self.fail_by(bug)
            return
        if now is not None:
            self.busy = True
            self._thread.put(partial(self._write, now))

    def _write(self, now: WriterRound) -> None:
        now.write()
        self._loop.call_soon_threadsafe(self._finish, now)

    def _finish(self, now: WriterRound) -> None:
        try:
            now.finish()
        except Exception as bug:
            self.fail_by(bug)
        self.busy = False
        self.begin()


class _LoneJob:
    """A turn of the thread that is no round."""

    def __init__(
        self, writer: RoundWriter, job: Job, then: Then | None, future: asyncio.Future[None] | None
    ) -> None:
        self._writer = writer
        self._job = job
        self._then = then
        self._future = future
        self._error: TernError | None = None

    def write(self) -> None:
        self._error = self._writer.attempt(self._job)

    def finish(self) -> None:
        if self._then is not None:
            self._then(self._error)
        if self._future is not None:
            settle(self._future, self._error)


def settle(future: asyncio.Future[None], error: TernError | None) -> None:
    """Everybody who waits gets an error of their own: raising writes a traceback into it."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error.copy())
