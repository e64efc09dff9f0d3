"""Keeps servers on the routes while they repeat REGISTER; standings decide which one is master.

Who is there is kept in memory: after a restart of meta everybody is back within a heartbeat. A
server that joined a broker group is on the routes as master if the group's standing names it and
it says that it is ready at that epoch; else as a replica. One that joined none says what it is.

Which groups there *are* is in the registry (standings, remembered delay servers), because one that
is away holds messages: "nobody knows this id" is only true if all of them were asked. Two servers
of one kind and name that joined no group cannot both be there.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec

from ternmq.core.clock import Clock
from ternmq.core.errors import AlreadyExists, TernError
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import later_topic
from ternmq.meta.config import HEARTBEAT_MS
from ternmq.meta.directory import MetaDirectory
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.standings.claims import last_known
from ternmq.meta.standings.liveness import ALWAYS
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.servers import Register, Registered, Route, Withdraw
from ternmq.wire.messages.standings import MemberJoin, Standing

EXPIRE_S_MAX = 1.0
HOLD_S = 0.5
HELD_S = 3.0
"""What was told grows old, or ends with the session that told it."""
CATCH_UP_S = 1.0
"""Shorter than a server waits for the answer to its heartbeat."""

log = get_logger()

Key = tuple[str, str, str]


@dataclass(slots=True)
class _There:
    """A server as it was heard last."""

    register: Register
    heard: float


class Present:
    """A server of this process; the same as `discovery.registration.Heartbeats` for others."""

    def __init__(self, registrar: "Registrar", register: Register) -> None:
        self._registrar = registrar
        self.register = register

    def set_epoch(self, epoch: int) -> None:
        self.register = msgspec.structs.replace(self.register, epoch=epoch)
        self._registrar.put(self.register, ALWAYS)


class Registrar:
    """REGISTER and WITHDRAW, and what happens when neither comes."""

    def __init__(
        self,
        directory: MetaDirectory,
        routes: RouteTable,
        clock: Clock,
        *,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self._directory = directory
        self._routes = routes
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._there: dict[Key, _There] = {}
        self._told_at = clock.monotonic()
        self._remember()
        directory.on_servers_changed(lambda _: self._remember())
        directory.on_standing_changed(self._stand)

    async def register(self, wanted: Register) -> Registered:
        """A server says that it is there, for the first time or still."""
        route = wanted.route
        check_name("server", route.broker_group)
        if wanted.member:
            await self._catch_up(wanted)
        self._refuse_second(wanted)
        if _key(wanted) not in self._there:
            if route.kind == "delay" and not wanted.member:
                await self._directory.remember_server(route)
                self._refuse_second(wanted)  # Another one may have been faster.
            log.info(
                "server registered",
                kind=route.kind,
                name=route.broker_group,
                address=route.address,
                member=wanted.member,
            )
        self.put(wanted, self._clock.monotonic())
        return Registered(
            heartbeat_ms=self._heartbeat_ms, dead_after_ms=self._directory.liveness.dead_after_ms
        )

    @asynccontextmanager
    async def present(self, route: Route, *, member: str = "") -> AsyncIterator[Present]:
        """A server of this process: there while the block runs."""
        wanted = Register(route=route, member=member)
        if route.kind == "delay" and not member:
            await self._directory.remember_server(route)
        self.put(wanted, ALWAYS)
        try:
            yield Present(self, wanted)
        finally:
            self._drop(wanted)

    async def withdraw(self, wanted: Withdraw) -> Empty:
        """A server is leaving; `for_good`: it holds nothing any more, or nobody cares."""
        route = wanted.route
        if not wanted.for_good:
            self._drop(Register(route=route, member=wanted.member))
            return Empty()
        if self._master(route) is not None:
            raise AlreadyExists(f"{route.broker_group!r} is running; stop it before you forget it")
        await self._directory.forget_server(route)
        held = self._directory.standing(route.broker_group, route.kind)
        for member in held.members if held is not None and route.kind == "delay" else ():
            await self._directory.forget_member(
                route.broker_group, member.id, kind=route.kind, accept_loss=True
            )
        if self._directory.topic(later_topic(route.broker_group)) is not None:
            await self._directory.delete_topic(later_topic(route.broker_group))
        return Empty()

    def check_join(self, wanted: MemberJoin) -> None:
        """A broker of an earlier release has the group's messages and joins no group."""
        for there in self._there.values():
            route = there.register.route
            if (route.kind, route.broker_group, there.register.member) != (
                wanted.kind,
                wanted.broker_group,
                "",
            ):
                continue
            if route.address != wanted.member.address:
                raise AlreadyExists(
                    f"{route.broker_group!r} is running at {route.address} and has joined no "
                    "broker group; stop it, then start it with this version first"
                )

    def writable_groups(self, kind: str, *, besides: str) -> list[str]:
        """Other groups that messages can be sent to now."""
        return [
            route.broker_group
            for route in self._routes.current().servers
            if (route.kind, route.role, route.draining) == (kind, "master", False)
            and route.broker_group != besides
        ]

    def silent(self) -> list[tuple[Route, float]]:
        """Servers of their own process, and for how many seconds they have said nothing."""
        now = self._clock.monotonic()
        return [
            (there.register.route, max(0.0, now - there.heard))
            for there in self._there.values()
            if there.heard != ALWAYS
        ]

    def guarded_otherwise(self, guarded: bool) -> list[str]:
        """Servers of their own process that do not ask who comes as this one does."""
        return sorted(
            there.register.route.address
            for there in self._there.values()
            if there.heard != ALWAYS and there.register.guarded != guarded
        )

    def expire(self) -> None:
        """Take servers off the routes that were silent for too long."""
        horizon = self._directory.liveness.horizon()
        for there in [each for each in self._there.values() if each.heard < horizon]:
            route = there.register.route
            self._forget(there.register)
            log.warning(
                "server is silent", kind=route.kind, name=route.broker_group, address=route.address
            )

    async def run(self) -> None:
        """Look for silent servers, often enough to notice when this process itself was stopped."""
        while True:
            await asyncio.sleep(min(EXPIRE_S_MAX, self._directory.liveness.dead_after_ms / 5_000))
            self.expire()

    async def run_held(self) -> None:
        """Tell other meta servers which servers this one hears, so that none seems dead to them."""
        last_told: frozenset[str] | None = None
        again = min(HELD_S, self._directory.liveness.dead_after_ms / 4000)
        while True:
            now = self._clock.monotonic()
            silent = {
                there.register.member: 0.0 if there.heard == ALWAYS else max(0.0, now - there.heard)
                for there in self._there.values()
                if there.register.member
            }
            if silent.keys() != last_told or now - self._told_at >= again:
                with suppress(TernError):
                    await self._directory.hold_servers(silent)
                    last_told, self._told_at = frozenset(silent), now
            await asyncio.sleep(min(HOLD_S, again))

    def put(self, register: Register, heard: float) -> None:
        """On the routes as what it is."""
        if register.member and heard == ALWAYS:
            self._directory.liveness.stays(register.member)
        elif register.member:
            self._directory.liveness.heard(register.member)
        before = self._there.get(_key(register))
        if before is not None and before.register.route.address != register.route.address:
            self._routes.withdraw(before.register.route)
        self._there[_key(register)] = _There(register, heard)
        self._routes.announce(self._route(register))

    def _drop(self, register: Register) -> None:
        """The server said goodbye."""
        if register.member:
            self._directory.liveness.left(register.member)
        self._forget(register)

    def _forget(self, register: Register) -> None:
        self._there.pop(_key(register), None)
        self._routes.withdraw(register.route)

    async def _catch_up(self, wanted: Register) -> None:
        """Another meta server may know more of the group than we do yet."""
        held = self._directory.standing(wanted.route.broker_group, wanted.route.kind)
        if held is None or held.member(wanted.member) is None or held.epoch < wanted.epoch:
            # No registry: who is there goes on being there.
            with suppress(TernError, TimeoutError):
                async with asyncio.timeout(CATCH_UP_S):
                    await self._directory.news.look()

    def _route(self, register: Register) -> Route:
        route = register.route
        held = self._directory.standing(route.broker_group, route.kind)
        if not register.member:
            return route
        leads = register.epoch > 0
        if held is not None:
            # Not decided: whoever led goes on with the members it had, as without a registry.
            named = held.master == register.member or held.claims
            leads = bool(named) and 0 < register.epoch == held.epoch
        role = "master" if leads else "replica"
        draining = held is not None and held.draining
        return msgspec.structs.replace(route, role=role, draining=draining)

    def _stand(self, standing: Standing) -> None:
        """Roles may be others now."""
        for there in self._there.values():
            route = there.register.route
            if (route.kind, route.broker_group) == (standing.kind, standing.broker_group):
                self._routes.announce(self._route(there.register))
        self._remember()

    def _remember(self) -> None:
        self._routes.remember([*self._directory.servers(), *_masters(self._directory.standings())])

    def _refuse_second(self, wanted: Register) -> None:
        route = wanted.route
        there = self._there.get(_key(wanted)) if wanted.member else None
        if there is not None and there.register.route.address != route.address:
            raise AlreadyExists(
                f"member {wanted.member} is running at {there.register.route.address}; of a copied "
                "data directory delete the file 'member'"
            )
        other = None if wanted.member or route.role != "master" else self._master(route)
        if other is not None and other.address != route.address:
            raise AlreadyExists(
                f"{route.kind} server {route.broker_group!r} is already running at "
                f"{other.address}; give this one another name"
            )

    def _master(self, route: Route) -> Route | None:
        for other in self._routes.current().servers:
            if (other.kind, other.broker_group, other.role) == (
                route.kind,
                route.broker_group,
                "master",
            ):
                return other
        return None


def _key(register: Register) -> Key:
    route = register.route
    return (route.kind, route.broker_group, register.member or route.address)


def _masters(standings: list[Standing]) -> list[Route]:
    """Where the messages of each group are, or were last."""
    return [
        Route(broker_group=standing.broker_group, address=member.address, kind=standing.kind)
        for standing in map(last_known, standings)
        if (member := standing.member(standing.master or next(iter(standing.in_sync), "")))
    ]
