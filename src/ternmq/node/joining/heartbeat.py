"""Registers one server with one meta server, and repeats it every heartbeat.

Whatever goes wrong is tried again. What is said may change at any time (`Saying`), and is then said
at once. A server that hangs says nothing. Runs on whichever loop it is started.
"""

import asyncio
from typing import Protocol

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.messages.servers import Register, Registered, Withdraw
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

ANSWER_S = 5.0
AGAIN_S = 0.5

log = get_logger()


class Saying(Protocol):
    """What a server has to say."""

    @property
    def register(self) -> Register: ...

    def hangs(self) -> bool:
        """The server does nothing at present, so it must not look alive."""

    def first(self) -> None:
        """A meta server has it."""

    def refusal(self, address: str, cluster: str) -> TernError | None:
        """Why nothing is said to the meta server there, which has the registry of this cluster."""


class Heartbeat:
    """Keeps one server known to one meta server."""

    def __init__(self, address: str, greeting: Greeting, saying: Saying) -> None:
        self._address = address
        self._greeting = greeting
        self._saying = saying
        self._connection: Connection | None = None
        self._woken = asyncio.Event()
        self.trouble: TernError | None = None

    async def run(self) -> None:
        while True:
            if self._saying.hangs():
                await asyncio.sleep(AGAIN_S)
                continue
            self._woken.clear()
            try:
                answer = await self._ask(Command.REGISTER, self._saying.register, Registered)
                self.trouble = None
                self._saying.first()
                await self._rest(answer.heartbeat_ms / 1000)
            except TernError as error:
                if self.trouble is None:
                    log.warning("not registered", meta=self._address, reason=error.message)
                self.trouble = error
                await asyncio.sleep(AGAIN_S)
            except Exception:
                log.exception("registering failed by a bug", meta=self._address)
                await asyncio.sleep(AGAIN_S)

    def wake(self) -> None:
        """There is something new to say."""
        self._woken.set()

    async def leave(self) -> None:
        register = self._saying.register
        try:
            if self._connection is not None and not self._connection.closed:
                wanted = Withdraw(route=register.route, member=register.member)
                await self._ask(Command.WITHDRAW, wanted, Record)
        except TernError as error:
            log.info("not withdrawn", meta=self._address, reason=error.message)
        if self._connection is not None:
            await self._connection.close()

    async def _rest(self, seconds: float) -> None:
        """Until the next heartbeat, or something new, or until meta is lost: it may be back at
        once, without us."""
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
        if self._connection is None or self._connection.closed:
            await asyncio.sleep(AGAIN_S)

    async def _ask(self, command: Command, record: Record, answer: type[T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(
                self._address, self._greeting, timeout=ANSWER_S
            )
            self._connection.listen(lost=lambda _: self._woken.set())
            refusal = self._saying.refusal(self._address, self._connection.welcome.cluster)
            if refusal is not None:
                self._connection.abort()
                raise refusal
        return await request(self._connection, command, record, answer, timeout=ANSWER_S)
