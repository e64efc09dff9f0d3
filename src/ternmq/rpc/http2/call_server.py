"""The listener of gRPC calls: accepts callers while a block runs, and bounds what they cost.

One timer, the sweep, looks at all connections once a second. Stopping: callers are told that no new
call is taken, then handlers are cancelled and connections closed after what was written is sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ternmq.core.errors import BadConfig, TernError
from ternmq.core.log import get_logger
from ternmq.rpc.address import join_address, split_address
from ternmq.rpc.http2.call_connection import CallConnection
from ternmq.rpc.http2.calls import CallTable
from ternmq.rpc.http2.deadlines import CallDeadlines
from ternmq.rpc.http2.frames import ConnectionFault, FaultCode
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.server import cannot_listen, connections_possible
from ternmq.security.tls.door import BACKLOG, IncomingTls, TlsDoor, TlsTerms

log = get_logger()


class CallServer:
    """One listening socket and the callers that came through it."""

    def __init__(
        self,
        table: CallTable,
        limits: CallLimits,
        loop: asyncio.AbstractEventLoop,
        tls: IncomingTls | None = None,
    ) -> None:
        """With `tls` the port takes both: the first bytes say which."""
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
        self._tls = tls
        self._listening: asyncio.Server | None = None
        self._door: TlsDoor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._empty = asyncio.Event()
        self._stopping = False

    async def start(self, host: str, port: int) -> None:
        """Bind and listen. Several processes may share one port."""
        try:
            if self._tls is None:
                self._listening = await self.loop.create_server(
                    self._plain, host, port, backlog=BACKLOG, reuse_port=True
                )
                sockets = self._listening.sockets
            else:
                limits = self.limits
                self._door = TlsDoor(
                    self._tls,
                    self,
                    self._secure,
                    arrive_s=limits.arrive_s,
                    linger_s=limits.linger_s,
                    make_plain=self._plain,
                )
                await self._door.open(host, port, share=True)
                sockets = tuple(self._door.sockets)
        except OSError as error:
            raise BadConfig(cannot_listen(host, port, error)) from error
        self.port = int(sockets[0].getsockname()[1])
        self._sweep()

    def _plain(self) -> CallConnection:
        return CallConnection(self)

    def _secure(self, _terms: TlsTerms) -> CallConnection:
        return CallConnection(self, secure=True)

    # Told by the door.

    def has_room(self, arriving: int, of_address: int) -> bool:
        return len(self.connections) + arriving < self._connections_max

    def report_stranger(self, address: tuple[str, int], reason: TernError) -> None:
        log.info("a caller was sent away", peer=join_address(*address), reason=reason.message)

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
        if self._door is not None:
            self._door.close()
            await self._door.empty()
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
    table: CallTable,
    address: str,
    limits: CallLimits | None = None,
    tls: IncomingTls | None = None,
) -> AsyncIterator[CallServer]:
    """Listen while a block runs."""
    host, port = split_address(address)
    server = CallServer(table, limits or CallLimits(), asyncio.get_running_loop(), tls)
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.stop()
