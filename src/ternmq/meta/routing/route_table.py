"""The route table: servers that announced themselves, as clients are told about them.

In memory only: a server announces itself again when it or meta starts. Those that exist and are
not there are listed as away. The version grows with each
change, so that a client can tell old news from new.
"""

import asyncio

import msgspec

from ternmq.wire.messages.order_keys import Home, Placement
from ternmq.wire.messages.servers import Encryption, Route, Routes

BODY_SIZES_MAX = 1_000
"""Topics whose size limits clients are told: every client gets them with every change."""


class RouteTable:
    """Routes by broker group, address and kind."""

    def __init__(self, *, first_version: int) -> None:
        # Starting from the time of day keeps versions growing over restarts of meta.
        self._routes = Routes(version=first_version, servers=[])
        self._remembered: list[Route] = []
        self._placement: Placement | None = None
        self._homes: dict[str, Home] = {}
        self._body_sizes: dict[str, int] = {}
        self._encrypted: dict[str, Encryption] = {}
        self.changed = asyncio.Event()
        """Set when the routes are others than they were; then another event is here."""

    def current(self) -> Routes:
        return self._routes

    def announce(self, route: Route) -> None:
        """A server is there now, or has a new role."""
        others = [other for other in self._routes.servers if not _same_server(other, route)]
        self._change([*others, route])

    def withdraw(self, route: Route) -> None:
        """A server is going away."""
        self._change([other for other in self._routes.servers if not _same_server(other, route)])

    def remember(self, servers: list[Route]) -> None:
        """Servers that exist, whether they are there now or not."""
        self._remembered = servers
        self._change(self._routes.servers)

    def place(self, placement: Placement | None) -> None:
        """Where messages go, as the registry has it now."""
        self._placement = placement
        self._change(self._routes.servers)

    def set_home(self, topic: str, home: Home | None) -> None:
        """Where a topic lives; None: everywhere, or it is gone."""
        if self._homes.get(topic) != home:
            self._homes = {name: each for name, each in self._homes.items() if name != topic}
            if home is not None:
                self._homes[topic] = home
            self._change(self._routes.servers)

    def limit_bodies(self, topic: str, size: int | None) -> None:
        """A topic takes no larger bodies than this; None: as large as any, or it is gone."""
        if self._body_sizes.get(topic) == size:
            return
        sizes = {name: each for name, each in self._body_sizes.items() if name != topic}
        if size is not None and len(sizes) < BODY_SIZES_MAX:
            sizes[topic] = size
        self._body_sizes = sizes
        self._change(self._routes.servers)

    def encrypt(self, topic: str, encryption: Encryption | None) -> None:
        """Producers encrypt what they send to a topic; None: they do not, or it is gone."""
        if self._encrypted.get(topic) != encryption:
            others = {name: each for name, each in self._encrypted.items() if name != topic}
            self._encrypted = others if encryption is None else {**others, topic: encryption}
            self._change(self._routes.servers)

    def masters(self) -> list[str]:
        """The broker groups that take messages, and are not being drained."""
        return [
            route.broker_group
            for route in self._routes.servers
            if route.kind == "realtime" and route.role == "master" and not route.draining
        ]

    def _change(self, servers: list[Route]) -> None:
        ordered = sorted(servers, key=lambda route: (route.broker_group, route.role, route.address))
        there = {(each.kind, each.broker_group) for each in servers if each.role == "master"}
        gone = {(each.kind, each.broker_group): each for each in self._remembered}
        away = [gone[key] for key in sorted(gone) if key not in there]
        made = Routes(
            version=self._routes.version,
            servers=ordered,
            away=away,
            placement=self._placement,
            homes=self._homes,
            body_sizes=self._body_sizes,
            encrypted=self._encrypted,
        )
        if made != self._routes:
            self._routes = msgspec.structs.replace(made, version=made.version + 1)
            self.changed.set()
            self.changed = asyncio.Event()


def _same_server(one: Route, other: Route) -> bool:
    return (one.broker_group, one.address, one.kind) == (
        other.broker_group,
        other.address,
        other.kind,
    )
