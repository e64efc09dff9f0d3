"""Which brokers there are: asked of a meta server, kept until refreshed.

One connection to one meta server at a time; when it fails, the next address is tried. Refreshes
that overlap share one question. What was learnt last stays usable while every meta server is away:
brokers serve without meta.
"""

import asyncio
import itertools
from collections.abc import Sequence

from ternmq.core.errors import Closed, TernError, Unavailable
from ternmq.rpc.connection import Connection, request
from ternmq.wire.commands import Command, Empty, Hello, Route, Routes


class RouteCache:
    """The routes as one client knows them. Used from one event loop."""

    def __init__(self, addresses: Sequence[str], hello: Hello, *, timeout: float = 5.0) -> None:
        assert addresses
        self._addresses = list(addresses)
        self._hello = hello
        self._timeout = timeout
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._refreshing: asyncio.Task[Routes] | None = None
        self._closed = False
        self.routes: Routes | None = None
        """What was learnt last; None before the first refresh."""

    def masters(self, kind: str = "realtime") -> list[Route]:
        """The servers that take messages, in the order meta told."""
        servers = self.routes.servers if self.routes is not None else []
        return [route for route in servers if route.role == "master" and route.kind == kind]

    async def refresh(self) -> Routes:
        """Ask again; raises `Unavailable` when no meta server answers."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="refresh routes")
            self._refreshing.add_done_callback(_looked_at)
        return await asyncio.shield(self._refreshing)

    async def connection(self) -> Connection:
        """A connection to some meta server, for questions other than routes."""
        async with self._opening:
            if self._closed:
                raise Closed("the client is closed")
            if self._connection is None or self._connection.closed:
                self._connection = await self._open_any()
            return self._connection

    async def close(self) -> None:
        self._closed = True
        if self._refreshing is not None and not self._refreshing.done():
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        if self._connection is not None:
            await self._connection.close()

    def abandon(self) -> None:
        """After a fork, in the child; see `Connection.abandon`."""
        self._closed = True
        if self._connection is not None:
            self._connection.abandon()

    async def _refresh(self) -> Routes:
        connection = await self.connection()
        try:
            routes = await self._ask(connection)
        except Unavailable:
            # The connection may have died unnoticed: once more, on a fresh one.
            connection.abort()
            routes = await self._ask(await self.connection())
        self.routes = routes
        return routes

    async def _ask(self, connection: Connection) -> Routes:
        return await request(connection, Command.ROUTES, Empty(), Routes, timeout=self._timeout)

    async def _open_any(self) -> Connection:
        """Try every address once, starting after the one that failed last."""
        failures: list[TernError] = []
        for address in tuple(self._addresses):
            try:
                return await Connection.open(address, self._hello, timeout=self._timeout)
            except TernError as error:
                failures.append(error)
                self._addresses.append(self._addresses.pop(0))
        if len(failures) == 1:
            raise failures[0]
        said = "; ".join(error.message for error in itertools.islice(failures, 5))
        raise Unavailable(f"no meta server answers: {said}")


def _looked_at(task: "asyncio.Task[Routes]") -> None:
    """Whoever asked may be gone by now; that is no reason for a warning."""
    if not task.cancelled():
        task.exception()
