"""All servers this client talks to: the meta servers of its url and one link per broker group.

Routes come from a meta server and are kept; they are asked for again when a broker cannot be
reached. A broker that is up goes on being used while no meta server answers.
"""

import os
import secrets
import socket

from ternmq.client.link import Link
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.url import parse_url
from ternmq.rpc.connection import request
from ternmq.wire.commands import PROTOCOL_VERSION, Hello, Record, Route, T

VERSION = "0.1.0"

log = get_logger()


class Links:
    """Meta and brokers, each with its one connection."""

    def __init__(self, url: str, *, app: str, timeout: float) -> None:
        self.url = url
        self._timeout = timeout
        self._hello = Hello(
            protocol=PROTOCOL_VERSION,
            app=app,
            version=VERSION,
            session=secrets.token_bytes(16),  # Kept over reconnects; a forked child has its own.
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        self._cache = RouteCache(parse_url(url), self._hello, timeout=timeout)
        self._brokers: dict[str, Link] = {}
        self._stale = False

    @property
    def version(self) -> object:
        """Another object whenever the routes were learnt anew."""
        return self._cache.routes

    def routes(self) -> list[Route]:
        return self._cache.routes.servers if self._cache.routes is not None else []

    async def refresh(self) -> None:
        """Ask who is there."""
        await self._cache.refresh()

    def masters(self) -> list[str]:
        """The broker groups that take messages."""
        return [route.broker_group for route in self._cache.masters()]

    async def some_masters(self) -> list[str]:
        """At least one broker group; `Unavailable` when the meta servers know none."""
        if not self.masters():
            await self.refresh()
        masters = self.masters()
        if not masters:
            raise Unavailable(f"the meta server at {self.url} knows no broker; is one running?")
        return masters

    def broker(self, broker_group: str) -> Link:
        """The link to the master of a broker group, made when first asked for."""
        link = self._brokers.get(broker_group)
        if link is None:

            async def find() -> str:
                return await self._broker_address(broker_group)

            link = self._brokers[broker_group] = Link(find, self._hello, timeout=self._timeout)
            link.watchers.append(self._forget_routes)
        return link

    async def ask_meta(self, command: int, record: Record, answer: type[T]) -> T:
        """One control request to a meta server."""
        connection = await self._cache.connection()
        return await request(connection, command, record, answer, timeout=self._timeout)

    async def ask(self, link: Link, command: int, record: Record, answer: type[T]) -> T:
        """One control request to a broker."""
        connection = await link.get()
        return await request(connection, command, record, answer, timeout=self._timeout)

    async def close(self) -> None:
        for link in self._brokers.values():
            await link.close()
        await self._cache.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's sockets."""
        for link in self._brokers.values():
            link.abandon()
        self._cache.abandon()

    def _forget_routes(self) -> None:
        self._stale = True

    async def _broker_address(self, broker_group: str) -> str:
        """Where the master of a group is now; after a loss the meta server is asked again."""
        if self._stale or not self.routes():
            try:
                await self.refresh()
                self._stale = False
            except TernError as error:
                log.info("routes are not refreshed", reason=str(error))
        for route in self._cache.masters():
            if route.broker_group == broker_group:
                return route.address
        raise Unavailable(f"no meta server knows the broker group {broker_group!r} at present")
