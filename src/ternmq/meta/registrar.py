"""Servers that are processes of their own say REGISTER again and again, or are off the routes.

Who is there is kept in memory: after a restart of meta everybody is back within a heartbeat. Which
delay servers there *are* is kept in the registry before the first message can reach them,
because one that is away holds messages, and "no delay server knows this id" is only true if all of
them were asked. Two servers of one kind and name cannot both be there.
"""

from ternmq.core.clock import Clock
from ternmq.core.errors import AlreadyExists
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.discovery.own_topics import later_topic
from ternmq.meta.route_table import RouteTable
from ternmq.meta.service import MetaService
from ternmq.wire.commands import Empty, Route
from ternmq.wire.registering import Register, Registered, Withdraw

HEARTBEAT_MS = 3_000
DEAD_AFTER_MS = 10_000

log = get_logger()


class Registrar:
    """REGISTER and WITHDRAW, and what happens when neither comes."""

    def __init__(self, service: MetaService, routes: RouteTable, clock: Clock) -> None:
        self._service = service
        self._routes = routes
        self._clock = clock
        self._heard: dict[Route, float] = {}
        routes.remember(service.servers())
        service.on_servers_changed(routes.remember)

    async def register(self, wanted: Register) -> Registered:
        """A server says that it is there, for the first time or still."""
        route = wanted.route
        check_name("server", route.broker_group)
        self._refuse_second(route)
        if route not in self._heard:
            await self.announce(route)
            log.info("server registered", kind=route.kind, name=route.broker_group,
                     address=route.address)  # fmt: skip
        self._heard[route] = self._clock.monotonic()
        return Registered(heartbeat_ms=HEARTBEAT_MS, dead_after_ms=DEAD_AFTER_MS)

    async def announce(self, route: Route) -> None:
        """Put a server on the routes; a delay server only once the registry remembers it."""
        if route.kind == "delay":
            await self._service.remember_server(route)
            self._refuse_second(route)  # Another one may have been faster.
        self._routes.announce(route)

    async def withdraw(self, wanted: Withdraw) -> Empty:
        """A server is leaving; `for_good`: it holds nothing any more, or nobody cares."""
        route = wanted.route
        gone = [each for each in self._heard if each == route]
        for each in gone:
            del self._heard[each]
        self._routes.withdraw(route)
        if wanted.for_good:
            if self._master(route) is not None:
                raise AlreadyExists(
                    f"{route.broker_group!r} is running; stop it before you forget it"
                )
            await self._service.forget_server(route)
            if self._service.topic(later_topic(route.broker_group)) is not None:
                await self._service.delete_topic(later_topic(route.broker_group))
        return Empty()

    def silent(self) -> list[tuple[Route, float]]:
        """Servers of their own process, and for how many seconds they have said nothing."""
        now = self._clock.monotonic()
        return [(route, max(0.0, now - heard)) for route, heard in self._heard.items()]

    def expire(self) -> None:
        """Take off the routes who was silent for too long."""
        too_old = self._clock.monotonic() - DEAD_AFTER_MS / 1000
        for route in [route for route, heard in self._heard.items() if heard < too_old]:
            del self._heard[route]
            self._routes.withdraw(route)
            log.warning("server is silent", kind=route.kind, name=route.broker_group,
                        address=route.address)  # fmt: skip

    def _refuse_second(self, route: Route) -> None:
        other = self._master(route)
        if other is not None and other.address != route.address and route.role == "master":
            raise AlreadyExists(
                f"{route.kind} server {route.broker_group!r} is already running at "
                f"{other.address}; give this one another name"
            )

    def _master(self, route: Route) -> Route | None:
        for other in self._routes.current().servers:
            if (other.kind, other.broker_group, other.role) == (
                route.kind, route.broker_group, "master",
            ):  # fmt: skip
                return other
        return None
