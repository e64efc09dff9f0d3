"""What a replica does with bytes of its master: check, write, answer, and let count what is safe.

Bytes that come while the writer works gather and are written by the next call, with one sync for
all of them, so a slow disk makes larger groups. A log is answered for when it is as safe as it was
asked to be; with `from_memory` when it is written, and on disk soon after. What the master calls
safe becomes visible as soon as it is written here.

The writer thread and its turns are those of a server that leads (`replication.round_writer`); jobs
that must be alone with the files (checkpoints, cuts) run there in between. The first error ends it:
nothing is taken until `restart`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from ternmq.core.errors import ProtocolError, TernError
from ternmq.core.log import get_logger
from ternmq.core.worker import Job
from ternmq.replication.round_writer import RoundWriter
from ternmq.rpc.buffers import Buffer
from ternmq.storage.log.replica_input import Received
from ternmq.wire.messages.replication import REPLICATE, REPLICATE_SYNC

SYNC_S = 0.5
"""Bytes that need not be on disk at once are there after this."""

log = get_logger()

OnWritten = Callable[[int, int], None]
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
        self._writer = RoundWriter("tern-writer", self, _bug)
        self._ask_sync = dict.fromkeys(logs, False)
        self._safe = dict.fromkeys(logs, 0)
        self.starts = dict.fromkeys(logs, 0)
        """Where the master's logs begin."""
        self.master_ends = dict.fromkeys(logs, 0)
        """How far they go, by its last word."""
        self._answer: OnWritten = _nobody
        self._life = 0  # What was written for one master is not answered to the next.
        self._halted = True
        self._failed: asyncio.Future[TernError] = self._loop.create_future()

    @property
    def failed(self) -> "asyncio.Future[TernError]":
        """Done when something went wrong."""
        return self._failed

    @property
    def busy(self) -> bool:
        """The writer has something to do."""
        return self._writer.busy

    def ends(self) -> dict[int, int]:
        return {number: target.end for number, target in self._logs.items()}

    def settle(self) -> asyncio.Future[None]:
        """Everything that is written is on disk when this is done. Raises where a sync failed, now
        or ever: those bytes can be read here, and a power cut takes them."""
        return self.alone(self._sync)

    def halt(self) -> None:
        """Nobody is followed any more: what has come and is not being written is not written, and
        nothing is answered for until `restart`. The next master is told where the logs end, and
        they must not move behind that."""
        self._halted = True
        self._answer = _nobody
        self._life += 1

    def restart(self, answer: OnWritten) -> None:
        """A master is followed from where the logs end."""
        assert not self._writer.busy, "wait until the writer is idle"
        self._writer.forget_sync()
        for target in self._logs.values():
            target.forget_received()
        self._safe = dict.fromkeys(self._logs, 0)
        self._answer = answer
        self._halted = False
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
        self.master_ends[number] = offset + len(payload) - REPLICATE.size
        if len(payload) > REPLICATE.size:
            target.receive(offset, memoryview(payload)[REPLICATE.size :])
            self._ask_sync[number] |= bool(flags & REPLICATE_SYNC)
        self._writer.begin()

    def give_up(self, error: TernError) -> None:
        """Something else here failed: nothing is taken any more."""
        self._fail(error)

    def alone(self, job: Job) -> asyncio.Future[None]:
        """Run a blocking job on the writer thread while nothing is written."""
        return self._writer.alone(job)

    async def close(self) -> None:
        await self._writer.drain()
        await self._writer.close()

    # -- as the writer's source

    @property
    def has_round(self) -> bool:
        """What is not written by now is not answered for, so the master sends it again."""
        return False

    def next_round(self) -> "_ReplicaRound | None":
        """Write what has come, or else let count what is safe."""
        groups: list[_ReceivedPart] = []
        if not self._failed.done() and not self._halted:
            for number, target in self._logs.items():
                received = target.take()
                if received is not None:
                    sync = self._ask_sync[number] and not self._from_memory
                    groups.append(_ReceivedPart(number, target, received, sync))
                    self._ask_sync[number] = False
        if groups:
            return _ReplicaRound(self, self._writer, groups)
        self._advance()
        return None

    # -- back on the loop

    def wrote(self, groups: "list[_ReceivedPart]", error: TernError | None) -> None:
        """A round is written, or the first error that it met."""
        if error is not None:
            self._fail(error)
            return
        for number, _, received, sync in groups:
            if sync or self._from_memory:
                self._answer(number, received.end)
            if not sync:
                self._writer.sync_later(SYNC_S, self._sync, partial(self._synced, self._life))

    def _synced(self, life: int, error: TernError | None) -> None:
        """Nobody waits for these bytes; still they are answered for when they are on disk."""
        if self._failed.done() or life != self._life:
            return
        if error is not None:
            self._fail(error)
            return
        for number, end in self.ends().items():
            self._answer(number, end)

    # -- on the writer thread

    def _sync(self) -> None:
        for target in self._logs.values():
            target.sync()

    # -- what counts

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
            self._writer.kick()

    def _fail(self, error: TernError) -> None:
        if not self._failed.done():
            log.error("copying failed", reason=error.message)
            self._failed.set_result(error)


class _ReceivedPart(NamedTuple):
    """What came of one log."""

    number: int
    target: ReplicaTarget
    received: Received
    sync: bool


@dataclass(slots=True)
class _ReplicaRound:
    """One turn of the writer thread; `replication.round_writer.WriterRound`."""

    replica: ReplicaWriter
    writer: RoundWriter
    groups: list[_ReceivedPart]
    error: TernError | None = None

    def write(self) -> None:
        for _, target, received, sync in self.groups:
            write = partial(target.write_received, received, sync=sync)
            self.error = self.error or self.writer.attempt(write)

    def finish(self) -> None:
        self.replica.wrote(self.groups, self.error)


def _nobody(log: int, end: int) -> None:
    """Nobody is followed."""


def _bug(bug: Exception) -> TernError:
    """Told to the follower role, which tries again."""
    return TernError(f"writing failed by a bug: {bug!r}")
