"""Staying on the routes: a server that is a process of its own registers with every meta server.

One task per meta server says REGISTER, waits a heartbeat, says it again; whatever goes wrong is
tried again. The tasks run on the server's own loop on purpose: a server whose loop hangs falls
silent and goes off the routes. Leaving the block withdraws at once.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.rpc.connection import Connection, request
from ternmq.wire.commands import Command, Hello, Record, Route, T
from ternmq.wire.registering import Register, Registered, Withdraw

FIRST_WITHIN_S = 30.0
"""Longer than a server of the same name that was killed counts as running."""
ANSWER_S = 5.0
AGAIN_S = 0.5

log = get_logger()


class _Announcer:
    """One server at one meta server."""

    def __init__(self, address: str, hello: Hello, route: Route) -> None:
        self._address = address
        self._hello = hello
        self._route = route
        self._connection: Connection | None = None
        self._lost = asyncio.Event()
        self.first = asyncio.Event()
        self.trouble: TernError | None = None

    async def run(self) -> None:
        while True:
            try:
                answer = await self._ask(Command.REGISTER, Register(route=self._route), Registered)
                self.trouble = None
                self.first.set()
                await self._rest(answer.heartbeat_ms / 1000)
            except TernError as error:
                if self.trouble is None:
                    log.warning("not registered", meta=self._address, reason=error.message)
                self.trouble = error
                await asyncio.sleep(AGAIN_S)

    async def _rest(self, seconds: float) -> None:
        """Until the next heartbeat, or until meta is lost: it may be back at once, without us."""
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return
        await asyncio.sleep(AGAIN_S)

    async def leave(self) -> None:
        try:
            if self._connection is not None and not self._connection.closed:
                await self._ask(Command.WITHDRAW, Withdraw(route=self._route), Record)
        except TernError as error:
            log.info("not withdrawn", meta=self._address, reason=error.message)
        if self._connection is not None:
            await self._connection.close()

    async def _ask(self, command: Command, record: Record, answer: type[T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = await Connection.open(self._address, self._hello, timeout=ANSWER_S)
            self._lost.clear()
            self._connection.on_lost = lambda _: self._lost.set()
        return await request(self._connection, command, record, answer, timeout=ANSWER_S)


@asynccontextmanager
async def registered(addresses: Sequence[str], hello: Hello, route: Route) -> AsyncIterator[None]:
    """Keep `route` on the routes while the block runs; the block begins when one meta has it."""
    announcers = [_Announcer(address, hello, route) for address in addresses]
    tasks = [asyncio.create_task(each.run(), name="tern-register") for each in announcers]
    firsts = [asyncio.create_task(each.first.wait()) for each in announcers]
    try:
        done, _ = await asyncio.wait(
            firsts, timeout=FIRST_WITHIN_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise next(each.trouble for each in announcers if each.trouble is not None)
        yield
    finally:
        for task in [*tasks, *firsts]:
            task.cancel()
        await asyncio.wait([*tasks, *firsts])
        await asyncio.gather(*(each.leave() for each in announcers))
