"""The routes of a cluster: asked of a meta server, and kept fresh by a question that waits there.

One connection to one meta server at a time; when it fails, or has no registry, the next one is
tried. Refreshes that overlap share one question. After the first one, `_watch` keeps one open that
a meta server answers when the routes are others, so a change is known in well under a second.
What was learnt last stays usable while every meta server is away: brokers serve without meta.
A meta server with the registry of another cluster is never asked (`cluster_identity`).
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence

from ternmq.core.errors import Closed, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.cluster_identity import ClusterIdentity, all_have
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.messages.servers import Route, Routes, RoutesFind
from ternmq.wire.numbers import Command

WATCH_MS = 10_000
PAUSE_S = 0.05
"""Between two questions: a meta server that answers at once must not keep us busy."""
AGAIN_S = 0.5

log = get_logger()


class RouteCache:
    """The routes as one client knows them. Used from one event loop."""

    def __init__(
        self,
        addresses: Sequence[str],
        greeting: Greeting,
        *,
        timeout: float = 5.0,
        refresh_s: float = WATCH_MS / 1000,
    ) -> None:
        """`refresh_s`: so often the routes come whole though nobody said that they changed."""
        assert addresses
        self._watch_ms = round(refresh_s * 1000)
        self._addresses = list(addresses)
        self._greeting = greeting
        self._timeout = timeout
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()
        self._refreshing: asyncio.Task[Routes] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self._refused: set[str] = set()
        self.cluster = ClusterIdentity()
        self.changed: list[Callable[[], None]] = []
        """Called when the routes are others."""
        self.routes: Routes | None = None
        """What was learnt last; None before the first refresh."""
        self._untold = False
        """Somebody who has to hear of these routes failed, by a bug: they are told again."""

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

    def move_on(self, connection: Connection) -> bool:
        """This meta server cannot answer: hang up, and begin with another one next time. False:
        there is no other."""
        # Others ask on the same connection: for them it is lost, they may ask again.
        connection.abort(Unavailable(f"{connection.address} could not answer; asking another"))
        if self._addresses[0] == connection.address:
            self._addresses.append(self._addresses.pop(0))
        return len(self._addresses) > 1

    async def close(self) -> None:
        self._closed = True
        for task in (self._refreshing, self._watching):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
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
            routes = await self._ask(await self.connection())
        self._learn(routes)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="watch routes")
        return routes

    async def _watch(self) -> None:
        """Ask what is new, again and again; whatever goes wrong is tried again."""
        while True:
            try:
                connection = await self.connection()
                known = 0 if self.routes is None or self._untold else self.routes.version
                self._learn(await self._ask(connection, known=known, wait_ms=self._watch_ms))
                await asyncio.sleep(PAUSE_S)
            except TernError:
                if self._closed:
                    return
                await asyncio.sleep(AGAIN_S)
            except Exception:  # Nobody else would ever ask again.
                log.exception("watching the routes failed by a bug")
                await asyncio.sleep(AGAIN_S)

    def _learn(self, routes: Routes) -> None:
        if self.routes is not None and routes == self.routes and not self._untold:
            return
        self.routes, self._untold = routes, True
        for callback in self.changed:
            callback()
        self._untold = False

    async def _ask(self, connection: Connection, *, known: int = 0, wait_ms: int = 0) -> Routes:
        find = RoutesFind(known=known, wait_ms=wait_ms)
        timeout = self._timeout + wait_ms / 1000
        try:
            return await request(connection, Command.ROUTES, find, Routes, timeout=timeout)
        except Unavailable:
            self.move_on(connection)  # It may have died unnoticed, or hang: the next one is fresh.
            raise

    async def _open_any(self) -> Connection:
        """Try every address once, starting after the one that failed last."""
        failures: list[TernError] = []
        for address in tuple(self._addresses):
            try:
                connection = await self._open(address)
                await self._check_cluster(connection)
                return connection
            except TernError as error:
                failures.append(error)
                self._addresses.append(self._addresses.pop(0))
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(error.message for error in itertools.islice(failures, 5))
        raise Unavailable(f"no meta server answers: {reasons}")

    async def _open(self, address: str) -> Connection:
        return await Connection.open(address, self._greeting, timeout=self._timeout)

    async def _check_cluster(self, connection: Connection) -> None:
        """Hangs up and raises `Unavailable` where the registry is another cluster's."""
        id_heard, address = connection.welcome.cluster, connection.address
        if self.cluster.is_foreign(id_heard) and not await self.is_only(id_heard, besides=address):
            connection.abort()
            refusal = self.cluster.refusal(address, id_heard)
            if address not in self._refused:
                log.error("a meta server of another cluster", reason=refusal.message)
                self._refused.add(address)
            raise refusal
        self.cluster.take(id_heard)

    async def is_only(self, cluster: str, *, besides: str = "") -> bool:
        """All meta servers of the url answer, and each of them has this registry."""
        others = [each for each in self._addresses if each != besides]
        return all_have(cluster, await asyncio.gather(*map(self._cluster_of, others)))

    async def _cluster_of(self, address: str) -> str | None:
        """None: it does not answer."""
        try:
            connection = await self._open(address)
        except TernError:
            return None
        connection.abort()
        return connection.welcome.cluster


def _looked_at(task: "asyncio.Task[Routes]") -> None:
    """The caller may be gone by now; that is no reason for a warning."""
    if not task.cancelled():
        task.exception()
