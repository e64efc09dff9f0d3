"""The listener of gRPC calls: accepts callers while a block runs, and bounds what they cost.

One timer, the sweep, looks at all connections once a second. Stopping: callers are told that no new
call is taken, then handlers are cancelled and connections closed after what was written is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.rpc.address import split_address
from ternmq.rpc.http2.call_connection import CallConnection
from ternmq.rpc.http2.calls import CallTable
from ternmq.rpc.http2.deadlines import CallDeadlines
from ternmq.rpc.http2.frames import ConnectionFault, FaultCode
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.server import cannot_listen, connections_possible

BACKLOG = 1_024

log = get_logger()


class CallServer:
    """One listening socket and the callers that came through it."""

    def __init__(
        self, table: CallTable, limits: CallLimits, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.table = table
        self.limits = limits
        self.loop = loop
        self.held = HeldBytes()
        self.deadlines = CallDeadlines(loop)
        self.port = 0
        """Where it listens."""
        self.connections: dict[CallConnection, None] = {}
        self.calls = 0
        """Under way, of all connections."""
        self._connections_max = connections_possible(limits.connections_max)
        self._listening: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._empty = asyncio.Event()
        self._stopping = False

    async def start(self, host: str, port: int) -> None:
        """Bind and listen. Several processes may share one port."""
        try:
            self._listening = await self.loop.create_server(
                self._connection, host, port, backlog=BACKLOG, reuse_port=True
            )
        except OSError as error:
            raise BadConfig(cannot_listen(host, port, error)) from error
        self.port = int(self._listening.sockets[0].getsockname()[1])
        self._sweep()

    def _connection(self) -> CallConnection:
        return CallConnection(self)

    # Told by connections.

    def came(self, connection: CallConnection) -> bool:
        if self._stopping or len(self.connections) >= self._connections_max:
            return False
        self.connections[connection] = None
        return True

    def went(self, connection: CallConnection) -> None:
        self.connections.pop(connection, None)
        self._check_quiet()

    def may_call(self) -> bool:
        return self.calls < self.limits.calls_max

    def call_began(self) -> None:
        self.calls += 1

    def call_ended(self) -> None:
        self.calls -= 1
        if self._stopping:
            self._check_quiet()

    def _check_quiet(self) -> None:
        if self._stopping and not self.calls:
            self._idle.set()
            if not self.connections:
                self._empty.set()

    def _sweep(self) -> None:
        """A bug in it must not be the last sweep."""
        self._timer = self.loop.call_later(self.limits.sweep_s, self._sweep)
        now = self.loop.time()
        for connection in tuple(self.connections):
            connection.look(now)

    async def stop(self) -> None:
        """Calls that end soon are answered; nothing is left when this returns."""
        if self._listening is not None:
            self._listening.close()
        self._stopping = True
        for connection in tuple(self.connections):
            connection.leave()
        await self._until(self._idle, lambda: not self.calls)
        goodbye = ConnectionFault(FaultCode.NO_ERROR, "this server is stopping")
        for connection in tuple(self.connections):
            connection.close(goodbye)
        await self._until(self._empty, lambda: not (self.calls or self.connections))
        for connection in tuple(self.connections):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
        self.deadlines.close()

    async def _until(self, event: asyncio.Event, holds: Callable[[], bool]) -> None:
        if holds():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.linger_s):
                await event.wait()


@asynccontextmanager
async def serving_calls(
    table: CallTable, address: str, limits: CallLimits | None = None
) -> AsyncIterator[CallServer]:
    """Listen while a block runs."""
    host, port = split_address(address)
    server = CallServer(table, limits or CallLimits(), asyncio.get_running_loop())
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.stop()
