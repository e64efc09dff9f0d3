"""A replica's link to its master: FOLLOW, cut what is not the master's, then take what comes.

One connection at a time. It ends when the connection is lost, the master says that it is none, or
something here fails; whoever runs it decides what is next. Before FOLLOW the epoch is accepted,
durably: from then on the masters of earlier epochs get no answer from this member. What is written
is synced before FOLLOW, too: a log whose sync failed is never answered for, so it does not follow.
"""

import asyncio
from collections.abc import Awaitable, Callable

from ternmq.core.errors import Corrupt, NotMaster, TernError
from ternmq.core.log import get_logger
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.frame import Frame
from ternmq.wire.messages.replication import REPLICATED, Follow, Followed
from ternmq.wire.numbers import Command

OPEN_S = 3.0
ANSWER_S = 20.0

log = get_logger()

Prepare = Callable[[Followed], Awaitable[None]]
"""Cuts the logs and adopts the master's history; the writer is idle meanwhile."""


class LeaderLink:
    """Follows one master at one epoch."""

    def __init__(self, writer: ReplicaWriter, greeting: Greeting, *, prepare: Prepare) -> None:
        self._writer = writer
        self._greeting = greeting
        self._prepare = prepare
        self._connection: Connection | None = None
        self._epoch = 0
        self._misfit: TernError | None = None
        self.following = False
        """The master's bytes are coming in."""

    async def run(self, address: str, follow: Callable[[], Follow]) -> None:
        """Follow until something ends it; raises what that was."""
        connection = await Connection.open(address, self._greeting, timeout=OPEN_S)
        lost: asyncio.Future[TernError] = asyncio.get_running_loop().create_future()
        connection.listen(lost=lambda error: None if lost.done() else lost.set_result(error))
        self._connection, self._misfit = connection, None
        try:
            await self._writer.settle()  # The first answer is for all that is written.
            asked = follow()
            self._epoch = asked.epoch
            followed = await request(connection, Command.FOLLOW, asked, Followed, timeout=ANSWER_S)
            if followed.epoch != asked.epoch:
                raise NotMaster(f"{address} leads epoch {followed.epoch}, not {asked.epoch}")
            await self._prepare(followed)
            while self._writer.busy:  # A checkpoint may have begun.
                await self._writer.alone(lambda: None)
            self._writer.restart(self._answer)
            connection.listen(pushed=self._pushed)
            for number, end in self._writer.ends().items():
                self._answer(number, end)
            self.following = True
            log.info("following", master=address, epoch=asked.epoch)
            await asyncio.wait({lost, self._writer.failed}, return_when=asyncio.FIRST_COMPLETED)
            raise self._misfit or (lost if lost.done() else self._writer.failed).result()
        finally:
            self.following = False
            self._writer.halt()
            self._connection = None
            connection.abort()
            if not lost.done():
                lost.cancel()

    async def hears(self, seconds: float) -> bool:
        """Whether the master that is followed answers within that time; True while none is."""
        connection = self._connection
        if connection is None or not self.following:
            return True
        try:
            async with asyncio.timeout(seconds):
                await connection.call(Command.PING)
        except TimeoutError:
            return False
        except TernError:
            return True  # The connection is lost: `run` ends by that.
        return True

    def _answer(self, number: int, end: int) -> None:
        if self._connection is not None:
            answer = REPLICATED.pack(self._epoch, end, number, 0)
            self._connection.send(Command.REPLICATED, answer)

    def _pushed(self, frame: Frame) -> None:
        if frame.command != Command.REPLICATE or self._writer.failed.done():
            return
        try:
            self._writer.take(frame.payload, self._epoch)
        except TernError as error:
            self._misfit = Corrupt(
                f"bytes of the master do not fit, its log may be damaged there: {error.message}"
            )
            if self._connection is not None:
                self._connection.abort()
        except Exception:
            log.exception("taking bytes of the master failed by a bug")
            if self._connection is not None:
                self._connection.abort()
