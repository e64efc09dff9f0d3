"""All servers this client talks to: the meta servers of its url and one link per broker group
and delay server.

Routes come from a meta server and are kept; they are asked for again when a broker cannot be
reached. A broker that is up goes on being used while no meta server answers.
"""

import secrets

import msgspec

from ternmq.client.model.request_check import sendable
from ternmq.client.sealing.keyring import ClientKeys, Keyring
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.link import Link
from ternmq.client.transport.user_login import Login
from ternmq.core.errors import NotMaster, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.slots import slot_of
from ternmq.discovery.cluster_access import ClusterAccess, new_hello
from ternmq.discovery.routes import WATCH_MS, RouteCache
from ternmq.discovery.url import read_url
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting, NodeGreeting, UserProof, over
from ternmq.security.tls.client_tls import ClientTls, OutgoingTls
from ternmq.wire.messages.hello import Hello
from ternmq.wire.messages.order_keys import Placement
from ternmq.wire.messages.servers import Route, Routes
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

REPEATABLE = frozenset(
    {
        Command.TOPIC_KEY_MAKE,
        Command.TOPIC_KEY_FIND,
        Command.KEY_ERASE,
        Command.TOPIC_LIST,
        Command.LIMIT_LIST,
        Command.GROUP_LIST,
        Command.DEAD_OPEN,
        Command.REFUSED_OPEN,
        Command.CONFIRM,
        Command.SEEK,
        Command.LEDGER,
        Command.STATUS,
        Command.TOPIC_FIGURES,
        Command.GROUP_FIGURES,
        Command.FIGURES_PAGE,
        Command.GROUP_TIMES,
        Command.DELAY_FIND,
        Command.DELAY_COUNT,
        Command.DELAY_LEDGER,
        Command.STANDINGS,
        Command.HALF_LIST,
        Command.PLACE,
        Command.DOC_LIST,
        Command.DOC_GET,
        Command.DOC_PUT,  # Recognised by the number of the request.
        # Orders that say what shall be: the second one finds it so.
        Command.TOPIC_CREATE,
        Command.TOPIC_SET,
        Command.LIMIT_SET,
        Command.GROUP_SET,
        Command.CONSUMER_PAUSE,
        Command.EXTEND,
        # What counted the first time is late the second time: no worse than not to know.
        Command.SETTLE,
        Command.BROKER_GROUP_DRAIN,
    }
)
"""Asking these twice does what asking once does."""
_NONE_KNOWN: dict[BrokerGroupKind, str] = {
    "realtime": "knows no broker; is one running?",
    "delay": "knows no delay server, and this message is for later: `tern up` runs one, "
    "`tern delay serve` runs one alone",
}

log = get_logger()


class Cluster:
    """Meta and brokers, each with its one connection."""

    def __init__(
        self,
        url: str,
        *,
        app: str,
        timeout: float,
        access: ClusterAccess | None = None,
        login: Login | None = None,
        keys: ClientKeys | None = None,
        refresh_s: float = WATCH_MS / 1000,
    ) -> None:
        """With `access` it is a server of the cluster that asks, over its own TLS if it has one,
        else as the url says. With a `login` it is a user."""
        named = read_url(url)
        self.url = url
        self.timeout = timeout
        credential, tls = (None, None) if access is None else (access.credential, access.tls)
        self._tls: OutgoingTls | None = tls or (None if named.tls is None else ClientTls(named.tls))
        self.hello = new_hello(app)
        """Its session is kept over reconnects; a forked child has its own."""
        self._login = login
        self._greeting: Greeting = over(
            self._as_user(self.hello)
            if credential is None
            else NodeGreeting(self.hello, credential),
            self._tls,
        )
        self._cache = RouteCache(
            named.addresses, self._greeting, timeout=timeout, refresh_s=refresh_s
        )
        self._servers: dict[tuple[BrokerGroupKind, str], Link] = {}
        self._readers: dict[str, Link] = {}
        self._stale = False
        self.known_routes: Routes | None = None
        """As last learnt; another object whenever they are others."""
        self.on_routes = self._cache.changed
        """Called when the routes are others."""
        self.on_routes.append(self._learn)
        self.keyring = Keyring(self, keys or ClientKeys())
        """The keys of encrypted topics."""

    @classmethod
    def of_server(cls, access: ClusterAccess, *, app: str, timeout: float) -> "Cluster":
        """As a server of the cluster reaches the others."""
        return cls(access.url, app=app, timeout=timeout, access=access)

    def greeting_apart(self) -> Greeting:
        """For a connection beside the links, with a session of its own."""
        hello = msgspec.structs.replace(self.hello, session=secrets.token_bytes(16))
        return over(self._as_user(hello), self._tls)

    def _as_user(self, hello: Hello) -> Hello | UserProof:
        return hello if self._login is None else self._login.greeting(hello)

    def routes(self) -> list[Route]:
        return self.known_routes.servers if self.known_routes is not None else []

    async def refresh(self) -> None:
        """Ask a meta server for the routes."""
        await self._cache.refresh()

    def masters(self, kind: BrokerGroupKind = "realtime") -> list[str]:
        """The groups whose master can be asked."""
        return [route.broker_group for route in self._cache.masters(kind)]

    def writable_groups(self, kind: BrokerGroupKind = "realtime") -> list[str]:
        """The groups for new messages: not those that are being drained, if there are others."""
        masters = self._cache.masters(kind)
        staying = [route.broker_group for route in masters if not route.draining]
        return staying or [route.broker_group for route in masters]

    def body_sizes(self) -> dict[str, int]:
        """What topics take at most, those that take less than any."""
        return self._cache.routes.body_sizes if self._cache.routes is not None else {}

    def weights(self) -> dict[str, int]:
        """How much groups get of what is shared out by weight; those not named the same."""
        placement = self.placement()
        return {} if placement is None else placement.weights

    def placement(self) -> Placement | None:
        """The placement of slots and weights, as last learnt from a meta server."""
        return self.known_routes.placement if self.known_routes is not None else None

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        """The group that stores this order key; None while its slot moves or none is known.

        Before anybody has sent with an order key any group will do: it gives slots their owners.
        """
        placement = self.placement()
        if placement is None or not placement.owners:
            return next(iter(self.masters()), None)
        return placement.owner(slot_of(topic, order_key))

    def away(self, kind: BrokerGroupKind) -> list[str]:
        """Groups that hold messages and cannot be asked at present."""
        routes = self.known_routes.away if self.known_routes is not None else []
        return [route.broker_group for route in routes if route.kind == kind]

    async def some_masters(self, kind: BrokerGroupKind = "realtime") -> list[str]:
        """At least one group; `Unavailable` when the meta servers know none."""
        if not self.masters(kind):
            await self.refresh()
        masters = self.masters(kind)
        if not masters and self.away(kind):
            raise Unavailable(self._no_leader(kind, self.away(kind)[0]))
        if not masters:
            raise Unavailable(f"the meta server at {self.url} {_NONE_KNOWN[kind]}")
        return masters

    async def some_writable_groups(self, kind: BrokerGroupKind = "realtime") -> list[str]:
        """At least one group for new messages."""
        await self.some_masters(kind)
        return self.writable_groups(kind)

    def broker(self, broker_group: str) -> Link:
        """The link to the master of a broker group."""
        return self.server(broker_group, "realtime")

    def server(self, group: str, kind: BrokerGroupKind) -> Link:
        """The link to the master of a group, made when first asked for."""
        link = self._servers.get((kind, group))
        if link is None:

            async def find() -> str:
                return await self._address(group, kind)

            link = Link(find, self._greeting, timeout=self.timeout, check=self._leading)
            self._servers[kind, group] = link
            link.watchers.append(self._forget_routes)
        return link

    def _leading(self, connection: Connection) -> TernError | None:
        """Routes may be a moment old: a server that led until now would answer from what it has,
        which may be less than was told before."""
        if connection.welcome.epoch > 0:
            return None
        self._forget_routes()
        return Unavailable(f"{connection.address} does not lead its broker group now")

    def reader(self, group: str) -> Link:
        """The link to a replica of a broker group; to its master while there is none."""
        link = self._readers.get(group)
        if link is None:

            async def find() -> str:
                try:
                    master = await self._address(group, "realtime")
                except Unavailable:  # Nobody leads: a replica has what was safe then.
                    if not self.has_replica(group):
                        raise
                    master = ""
                return next(iter(self._replicas(group)), master)

            link = self._readers[group] = Link(find, self._greeting, timeout=self.timeout)
            link.watchers.append(self._forget_routes)
        return link

    async def ask_meta(self, command: int, record: Record, answer: type[T]) -> T:
        """One control request to a meta server; to the next one if it cannot be answered there,
        for it may not reach the registry."""
        sendable(record)
        connection = await self._cache.connection()
        try:
            return await request(connection, command, record, answer, timeout=self.timeout)
        except Unavailable:
            lost = connection.closed
            again = self._cache.move_on(connection) or lost
            if not again or command not in REPEATABLE:
                raise
        connection = await self._cache.connection()
        return await request(connection, command, record, answer, timeout=self.timeout)

    async def ask(self, link: Link, command: int, record: Record, answer: type[T]) -> T:
        """One control request to a broker. While its group has no leader, or has lost it,
        it is tried again, within the time of a request. A connection may have died unnoticed, or
        die now: what may be asked twice is asked again, on a fresh one."""
        sendable(record)
        attempts = Attempts(self.timeout)
        while True:
            connection = None
            try:
                connection = await link.get()
                return await request(connection, command, record, answer, timeout=self.timeout)
            except (Unavailable, NotMaster) as error:
                lost = connection is not None and connection.closed and command in REPEATABLE
                if not (connection is None or lost):
                    raise
                await attempts.failed(error)

    async def close(self) -> None:
        for link in [*self._servers.values(), *self._readers.values()]:
            await link.close()
        await self._cache.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's sockets."""
        for link in [*self._servers.values(), *self._readers.values()]:
            link.abandon()
        self._cache.abandon()

    def has_replica(self, group: str) -> bool:
        """Is a replica of it there?"""
        return bool(self._replicas(group))

    def _replicas(self, group: str) -> list[str]:
        wanted = (group, "replica", "realtime")
        return [
            route.address
            for route in self.routes()
            if (route.broker_group, route.role, route.kind) == wanted
        ]

    def _learn(self) -> None:
        """Routes are others: a group may have another master, and the old one may stand still
        without a word."""
        self.known_routes = self._cache.routes
        for (kind, group), link in self._servers.items():
            for route in self._cache.masters(kind):
                if route.broker_group == group:
                    link.move(route.address)
        for group, link in self._readers.items():
            replicas = self._replicas(group)
            if replicas and link.connection and link.connection.address not in replicas:
                link.move(replicas[0])

    def _forget_routes(self) -> None:
        self._stale = True

    async def _address(self, group: str, kind: BrokerGroupKind) -> str:
        """Where the master of a group is now; after a loss the meta server is asked again."""
        if self._stale or not self.routes():
            try:
                await self.refresh()
                self._stale = False
            except TernError as error:
                log.info("routes are not refreshed", reason=str(error))
        for route in self._cache.masters(kind):
            if route.broker_group == group:
                return route.address
        if group in self.away(kind):
            raise Unavailable(self._no_leader(kind, group))
        what = "delay server" if kind == "delay" else "broker group"
        raise Unavailable(f"no meta server knows the {what} {group!r} at present")

    def _no_leader(self, kind: BrokerGroupKind, group: str) -> str:
        """What a person can do about a group that holds messages and nobody leads."""
        what, flag = ("delay server", " --kind delay") if kind == "delay" else ("broker group", "")
        return (
            f"the {what} {group!r} holds messages, and nobody leads it at present: start it again, "
            f"or `tern broker promote {group}{flag}` if only a replica is left"
        )
