"""What a replica does with bytes of its master: check, write, answer, and let count what is safe.

Bytes that come while the writer works gather and are written by the next call, with one sync for
all of them, so a slow disk makes larger groups. A log is answered for when it is as safe as it was
asked to be; with `from_memory` when it is written, and on disk soon after. What the master calls
safe becomes visible as soon as it is written here.

One writer thread; jobs that must be alone with the files (checkpoints, cuts) run there in between.
The first error ends it: nothing is taken until `restart`.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from ternmq.core.errors import ProtocolError, TernError
from ternmq.core.log import get_logger
from ternmq.core.worker import Job, start_worker
from ternmq.rpc.buffers import Buffer
from ternmq.storage.log.replica_input import Received
from ternmq.wire.messages.replication import REPLICATE, REPLICATE_SYNC

SYNC_S = 0.5
"""Bytes that need not be on disk at once are there after this."""

log = get_logger()

Answer = Callable[[int, int], None]
"""Log and end: so much is held here."""


class ReplicaTarget(Protocol):
    """A log that is copied here."""

    @property
    def end(self) -> int: ...

    safe_offset: int

    def receive(self, offset: int, data: Buffer) -> None: ...

    def take(self) -> Received | None: ...

    def write_received(self, received: Received, *, sync: bool) -> None: ...

    def forget_received(self) -> None: ...

    def sync(self) -> None: ...

    def advance(self, to: int) -> Any:
        """A piece of it; to be called until `safe_offset` is there."""


class ReplicaWriter:
    """The writing side of a replica."""

    def __init__(
        self,
        logs: Mapping[int, ReplicaTarget],
        *,
        from_memory: bool = False,
        on_safe: Callable[[int, Any], None],
    ) -> None:
        self._logs = dict(logs)
        self._from_memory = from_memory
        self._on_safe = on_safe
        self._loop = asyncio.get_running_loop()
        self._writer = start_worker("tern-writer")
        self._busy = False
        self._ask_sync = dict.fromkeys(logs, False)
        self._syncing: asyncio.TimerHandle | None = None
        self._safe = dict.fromkeys(logs, 0)
        self.starts = dict.fromkeys(logs, 0)
        """Where the master's logs begin."""
        self.told = dict.fromkeys(logs, 0)
        """How far they go, by its last word."""
        self._jobs: list[tuple[Job, asyncio.Future[None]]] = []
        self._answer: Answer = _nobody
        self._life = 0  # What was written for one master is not answered to the next.
        self._failed: asyncio.Future[TernError] = self._loop.create_future()

    @property
    def failed(self) -> "asyncio.Future[TernError]":
        """Done when something went wrong."""
        return self._failed

    @property
    def busy(self) -> bool:
        """The writer has something to do."""
        return self._busy

    def ends(self) -> dict[int, int]:
        return {number: target.end for number, target in self._logs.items()}

    def settle(self) -> asyncio.Future[None]:
        """Everything that is written is on disk when this is done. Raises where a sync failed, now
        or ever: those bytes can be read here, and a power cut takes them."""
        return self.alone(self._sync)

    def restart(self, answer: Answer) -> None:
        """A master is followed from where the logs end."""
        assert not self._busy, "wait until the writer is idle"
        if self._syncing is not None:
            self._syncing.cancel()
            self._syncing = None
        for target in self._logs.values():
            target.forget_received()
        self._safe = dict.fromkeys(self._logs, 0)
        self._answer = answer
        self._life += 1
        self._failed = self._loop.create_future()

    def take(self, payload: bytearray, expected: int) -> None:
        """One REPLICATE frame of the expected epoch. Raises what is wrong with it."""
        if len(payload) < REPLICATE.size:
            raise ProtocolError("REPLICATE is cut off")
        epoch, offset, safe, start, number, flags = REPLICATE.unpack_from(payload)
        target = self._logs.get(number)
        if target is None or epoch != expected:
            raise ProtocolError(f"log {number} of epoch {epoch} is not followed here")
        self._safe[number], self.starts[number] = max(safe, self._safe[number]), start
        self.told[number] = offset + len(payload) - REPLICATE.size
        if len(payload) > REPLICATE.size:
            target.receive(offset, memoryview(payload)[REPLICATE.size :])
            self._ask_sync[number] |= bool(flags & REPLICATE_SYNC)
        if not self._busy:
            self._begin()

    def give_up(self, error: TernError) -> None:
        """Something else here failed: nothing is taken any more."""
        self._fail(error)

    def alone(self, job: Job) -> asyncio.Future[None]:
        """Run a blocking job on the writer thread while nothing is written."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.append((job, future))
        if not self._busy:
            self._begin()
        return future

    async def close(self) -> None:
        if self._syncing is not None:
            self._syncing.cancel()
        await self.alone(lambda: None)
        await self._writer.close()

    def _begin(self) -> None:
        """Write what has come, or run a job, or else let count what is safe."""
        if self._jobs:
            job, future = self._jobs.pop(0)
            self._busy = True
            self._writer.put(lambda: self._run_alone(job, future))
            return
        groups: list[tuple[int, Received, bool]] = []
        if not self._failed.done():
            for number, target in self._logs.items():
                received = target.take()
                if received is not None:
                    sync = self._ask_sync[number] and not self._from_memory
                    groups.append((number, received, sync))
                    self._ask_sync[number] = False
        if groups:
            self._busy = True
            self._writer.put(lambda: self._write(groups))
        else:
            self._advance()

    # -- on the writer thread

    def _write(self, groups: list[tuple[int, Received, bool]]) -> None:
        error = None
        for number, received, sync in groups:
            write = partial(self._logs[number].write_received, received, sync=sync)
            error = error or _try(write)
        self._loop.call_soon_threadsafe(self._wrote, groups, error)

    def _sync(self) -> None:
        for target in self._logs.values():
            target.sync()

    def _run_alone(self, job: Job, future: asyncio.Future[None]) -> None:
        self._loop.call_soon_threadsafe(self._ran, future, _try(job))

    # -- back on the loop

    def _wrote(self, groups: list[tuple[int, Received, bool]], error: TernError | None) -> None:
        self._busy = False
        if error is not None:
            self._fail(error)
        else:
            for number, received, sync in groups:
                if sync or self._from_memory:
                    self._answer(number, received.end)
                if not sync and self._syncing is None:
                    self._syncing = self._loop.call_later(SYNC_S, self._sync_soon)
        self._begin()

    def _sync_soon(self) -> None:
        """Nobody waits for these bytes; still they are answered for when they are on disk."""
        self._syncing = None
        ends, life = self.ends(), self._life

        def answer(done: asyncio.Future[None]) -> None:
            if done.cancelled() or life != self._life:
                return
            error = done.exception()
            if isinstance(error, TernError):
                self._fail(error)
            elif error is None:
                for number, end in ends.items():
                    self._answer(number, end)

        if not self._failed.done():
            self.settle().add_done_callback(answer)

    def _ran(self, future: asyncio.Future[None], error: TernError | None) -> None:
        self._busy = False
        if not future.done():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        self._begin()

    def _advance(self) -> None:
        """A piece of what counts by now; the rest in the next turn of the loop."""
        more = False
        try:
            for number, target in self._logs.items():
                to = min(self._safe[number], target.end)
                before = target.safe_offset
                if before < to:
                    self._on_safe(number, target.advance(to))
                    more |= before < target.safe_offset < to
        except TernError as error:
            self._fail(error)
            return
        if more:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self._busy:
            self._begin()

    def _fail(self, error: TernError) -> None:
        if not self._failed.done():
            log.error("copying failed", reason=error.message)
            self._failed.set_result(error)


def _try(job: Job) -> TernError | None:
    try:
        job()
    except TernError as error:
        return error
    except Exception as bug:
        log.exception("writing failed by a bug")
        return TernError(f"writing failed by a bug: {bug!r}")
    return None


def _nobody(log: int, end: int) -> None:
    """Nobody is followed."""
