"""The servers of one kind that this client sends to, brokers or delay servers, taking turns.

Which there are comes from the routes; an outlet is made when its server's turn comes first. Never
moves a message from one server to another: an outlet keeps what it was given until it is answered.
"""

import asyncio
from collections.abc import Iterator

from ternmq.client.config import ClientConfig
from ternmq.client.link import back_off
from ternmq.client.links import Kind, Links
from ternmq.client.outlet import Outlet
from ternmq.core.errors import TernError


class Outlets:
    """One line of parcels per server."""

    def __init__(self, links: Links, kind: Kind, config: ClientConfig) -> None:
        self.kind: Kind = kind
        self.finding: asyncio.Task[None] | None = None
        """Somebody asks for routes because none are known."""
        self._links = links
        self._config = config
        self._outlets: dict[str, Outlet] = {}
        self._groups: list[str] = []
        self._routes: object = None
        self._turn = 0

    def __iter__(self) -> Iterator[Outlet]:
        return iter(self._outlets.values())

    @property
    def known(self) -> bool:
        """Is there anybody to send to, as far as we know?"""
        if not self._groups:
            self._groups, self._routes = self._links.masters(self.kind), self._links.version
        return bool(self._groups)

    def next(self) -> Outlet:
        """The server whose turn it is; one that is about to stop is passed over."""
        if self._routes is not self._links.version:
            self._routes = self._links.version
            self._groups = self._links.masters(self.kind) or self._groups
        for _ in self._groups:
            self._turn += 1
            outlet = self._outlet(self._groups[self._turn % len(self._groups)])
            if not outlet.ebbing:
                break
        return outlet

    def _outlet(self, group: str) -> Outlet:
        outlet = self._outlets.get(group)
        if outlet is None:
            outlet = self._outlets[group] = Outlet(group, self._links.server(group, self.kind))
        return outlet

    async def find(self) -> None:
        """Ask the meta servers; raises when they know none, or none of them answers."""
        self._groups = await self._links.some_masters(self.kind)

    async def ready(self) -> None:
        """Wait until there is somebody to send to, at most `delivery_timeout`."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._config.delivery_timeout
        failures = 0
        while not self.known:
            try:
                await self.find()
            except TernError as error:
                failures += 1
                if not error.retryable or loop.time() > give_up:
                    raise
                await asyncio.sleep(back_off(failures))

    async def stop(self) -> None:
        """Give up everything that is not answered."""
        if self.finding is not None:
            self.finding.cancel()
            await asyncio.wait([self.finding])
        for outlet in self._outlets.values():
            outlet.stop()
