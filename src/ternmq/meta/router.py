"""From a frame to its answer: every command of a meta server is a line in one table.

Names are decided by the directory.

Answers that are in memory are given at once; what has to be stored runs as a task that answers when
it is durable (`rpc.pending_requests`), so a client that asks faster than the registry writes is not
read from for a while.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, OverLimit, TooLarge, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.process import own_cpu_s, own_memory
from ternmq.discovery.access_changes import follow_access
from ternmq.discovery.hidden_topics import PLACEMENT
from ternmq.intake.topic_rules import made_for
from ternmq.meta.access.access_commands import AccessCommands
from ternmq.meta.access.access_key_commands import AccessKeyCommands
from ternmq.meta.access.key_commands import KeyCommands
from ternmq.meta.access.token_commands import TokenCommands, own_rights
from ternmq.meta.config import HEARTBEAT_MS
from ternmq.meta.connected_clients import ConnectedClients
from ternmq.meta.directory import MetaDirectory
from ternmq.meta.document_commands import DocumentCommands
from ternmq.meta.policies import (
    app_limit,
    body_limit_of,
    check_settings,
    encryption_of,
    home_of,
    limit_changes,
    limited_apps,
    topic_change,
)
from ternmq.meta.routing.registrar import Registrar
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.server_commands import (
    ServerCommands,
    StandingCommands,
    check_own,
    is_server,
    shown_to,
)
from ternmq.rpc.guarded.guard import Guard
from ternmq.rpc.guarded.guarded_peer import GuardedHandler
from ternmq.rpc.node_proof import proven
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.rpc.server import Handler, Peer
from ternmq.security.access.access_book import AccessBook
from ternmq.security.tls.server_tls import ServerTls, tls_facts
from ternmq.wire.frame import FRAME_SIZE_MAX, Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome
from ternmq.wire.messages.limits import (
    AccessKeyFind,
    AccessKeyOpen,
    AccessKeySet,
    AppLimits,
    GrantSet,
    LimitSet,
    TokenCreate,
    TokenEnd,
    TokenFind,
    TokenRevoke,
    TopicSet,
    UserFind,
    UserNamed,
    UserSet,
    WhoAmI,
)
from ternmq.wire.messages.order_keys import PlaceChange
from ternmq.wire.messages.servers import (
    EpochNew,
    GroupIdFind,
    Register,
    Reserve,
    RoutesFind,
    TopicNewsFind,
    Withdraw,
)
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    InSyncChange,
    InSyncLeave,
    MemberForget,
    MemberJoin,
    MemberLead,
    StandingFind,
)
from ternmq.wire.messages.stats import Status
from ternmq.wire.messages.topics import (
    KeyErase,
    Topic,
    TopicCreate,
    TopicFind,
    TopicIds,
    TopicKeyFind,
    TopicKeyMake,
    TopicKeyQuery,
    TopicKeyRewrap,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack
from ternmq.wire.registry.documents import (
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)

R = TypeVar("R", bound=Record)
Reply = Callable[[R], Coroutine[None, None, Record]]
Handle = Callable[[Peer, Frame], None]

ROUTES_WAIT_MS_MAX = 30_000
WAITING = {Command.ROUTES, Command.TOPIC_NEWS}
"""Questions that are answered when something happens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaIdentity:
    """The name, address and times of this server, as STATUS and WELCOME say them."""

    node: str
    version: str
    address: str
    data_dir: Path
    started_at_ms: int
    heartbeat_ms: int = 3_000
    """Of clients."""
    server_heartbeat_ms: int = HEARTBEAT_MS
    insecure: bool = False
    tls: ServerTls | None = None


class MetaRouter:
    """Implements `rpc.server.Handler`."""

    def __init__(
        self,
        directory: MetaDirectory,
        routes: RouteTable,
        *,
        identity: MetaIdentity,
        clock: Clock,
        guard: Guard | None = None,
        clients: ConnectedClients | None = None,
    ) -> None:
        """With a guard nobody reaches this but by `door`."""
        self.door: Handler = self if guard is None else GuardedHandler(self, guard)
        self._guard = guard
        self._clients = clients
        self._directory = directory
        self._routes = routes
        self._identity = identity
        self._clock = clock
        self.registrar = Registrar(
            directory, routes, clock, heartbeat_ms=identity.server_heartbeat_ms
        )
        book = AccessBook()
        follow_access(book, directory)
        self._access = AccessCommands(directory, book, now_ms=clock.now_ms)
        self._tokens = TokenCommands(
            self._access,
            cluster=directory.cluster,
            data_dir=identity.data_dir,
            now_ms=clock.now_ms,
        )
        self._access_keys = AccessKeyCommands(
            directory, self._access, self._tokens, now_ms=clock.now_ms
        )
        self._keys = KeyCommands(directory, data_dir=identity.data_dir)
        self._documents = DocumentCommands(directory)
        self._table: dict[int, Handle] = self._commands(
            ServerCommands(directory), StandingCommands(directory, self.registrar)
        )
        self._pending = PendingRequests()
        self._connections = 0
        for topic in directory.topics():
            self._placed(topic)
        directory.on_topic_changed(self._placed)
        directory.on_topic_deleted(self._gone)

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        if peer.node is None:
            check_name("application", hello.app)
            if self._clients is not None:
                self._clients.came(id(peer), hello)
        self._connections += 1
        return Welcome(
            protocol=PROTOCOL_VERSION,
            version=self._identity.version,
            role="meta",
            node=self._identity.node,
            heartbeat_ms=self._identity.heartbeat_ms,
            cluster=self._directory.cluster,
        )

    def lost(self, peer: Peer) -> None:
        self._connections -= 1
        if self._clients is not None:
            self._clients.left(id(peer))

    def _commands(self, names: ServerCommands, standings: StandingCommands) -> dict[int, Handle]:
        later, servers_only, granted = self._answers, self._answers_servers, self._answers_guarded
        return {
            # Clients.
            Command.ROUTES: self._find_routes,
            Command.STATUS: self._say_status,
            Command.TOPIC_CREATE: self._create_topic,
            Command.TOPIC_LIST: self._list_topics,
            Command.TOPIC_SET: later(TopicSet, self._set_topic),
            Command.TOPIC_DELETE: self._delete,
            Command.LIMIT_SET: later(LimitSet, self._set_limit),
            Command.LIMIT_LIST: self._list_limits,
            # Who may grant.
            Command.USER_SET: granted(UserSet, self._access.set_user),
            Command.USER_LIST: granted(UserFind, self._access.find),
            Command.USER_REMOVE: granted(UserNamed, self._access.remove),
            Command.GRANT_SET: granted(GrantSet, self._access.grant),
            Command.TOKEN_CREATE: granted(TokenCreate, self._tokens.create),
            Command.TOKEN_LIST: granted(TokenFind, self._tokens.find),
            Command.TOKEN_REVOKE: granted(TokenRevoke, self._tokens.revoke),
            Command.ACCESS_KEY_SET: granted(AccessKeySet, self._access_keys.set),
            Command.ACCESS_KEY_LIST: granted(AccessKeyFind, self._access_keys.find),
            Command.ACCESS_KEY_OPEN: granted(AccessKeyOpen, self._access_keys.open),
            # Everybody, about the own connection.
            Command.WHO_AM_I: self._say_rights,
            Command.TOKEN_END: self._end_token,
            # Operators.
            Command.TOPIC_KEY_MAKE: self._make_key,
            Command.TOPIC_KEY_FIND: later(TopicKeyFind, self._keys.find),
            Command.TOPIC_KEY_LIST: later(TopicKeyQuery, self._keys.list),
            Command.KEY_ERASE: later(KeyErase, self._keys.erase),
            Command.TOPIC_KEY_REWRAP: later(TopicKeyRewrap, self._keys.rewrap),
            Command.DOC_LIST: later(DocumentQuery, self._documents.list),
            Command.DOC_GET: later(DocumentNamed, self._documents.find),
            Command.DOC_PUT: later(DocumentPut, self._documents.put),
            Command.DOC_DELETE: later(DocumentDelete, self._documents.delete),
            Command.STANDINGS: later(StandingFind, standings.find),
            Command.MEMBER_LEAD: self._lead(standings),
            Command.MEMBER_FORGET: later(MemberForget, standings.change),
            Command.BROKER_GROUP_DRAIN: later(BrokerGroupDrain, standings.drain),
            Command.PLACE: self._place,
            # Servers.
            Command.WITHDRAW: self._withdraw,
            Command.REGISTER: servers_only(Register, self.registrar.register),
            Command.MEMBER_JOIN: servers_only(MemberJoin, standings.join),
            Command.IN_SYNC_CHANGE: servers_only(InSyncChange, standings.change),
            Command.IN_SYNC_LEAVE: servers_only(InSyncLeave, standings.change),
            Command.TOPIC_NEWS: servers_only(TopicNewsFind, names.news),
            Command.GROUP_ID: servers_only(GroupIdFind, names.group_id),
            Command.GROUP_FORGET: servers_only(GroupIdFind, names.forget_group),
            Command.EPOCH: servers_only(EpochNew, names.new_epoch),
            Command.RESERVE: servers_only(Reserve, names.reserve),
            Command.TOPICS_GONE: servers_only(TopicIds, names.gone_topics),
        }

    @property
    def commands(self) -> frozenset[int]:
        """What is answered here."""
        return frozenset(self._table)

    def frame(self, peer: Peer, frame: Frame) -> None:
        handle = self._table.get(frame.command)
        if handle is None:
            name = Command(frame.command).name
            raise BadRequest(f"a meta server does not do {name}; ask for routes, then ask a broker")
        handle(peer, frame)

    # -- kinds of lines

    def _answers(self, kind: type[R], answer: Reply[R]) -> Handle:
        """To be stored or waited for first: a task."""

        def handle(peer: Peer, frame: Frame) -> None:
            self._later(peer, frame, answer(unpack(frame.payload, kind)))

        return handle

    def _answers_servers(self, kind: type[R], answer: Reply[R]) -> Handle:
        def handle(peer: Peer, frame: Frame) -> None:
            wanted = unpack(frame.payload, kind)
            check_own(proven(peer), wanted)
            self._later(peer, frame, answer(wanted))

        return handle

    def _answers_guarded(self, kind: type[R], answer: Reply[R]) -> Handle:
        """Where nobody has to say who he is, anybody could make himself an admin for later."""

        def handle(peer: Peer, frame: Frame) -> None:
            if self.door is self:
                raise BadRequest(
                    "security is off here, so nobody may make users: write security = true into "
                    "the settings of all servers; the first start then makes an admin"
                )
            self._later(peer, frame, answer(unpack(frame.payload, kind)))

        return handle

    # -- what has a line of its own

    def _say_rights(self, peer: Peer, frame: Frame) -> None:
        unpack(frame.payload, WhoAmI)
        peer.answer(frame.command, frame.correlation, pack(own_rights(peer.rights)))

    def _end_token(self, peer: Peer, frame: Frame) -> None:
        unpack(frame.payload, TokenEnd)
        self._later(peer, frame, self._tokens.end(peer.rights))

    def _find_routes(self, peer: Peer, frame: Frame) -> None:
        find = unpack(frame.payload, RoutesFind)
        if find.wait_ms > 0 and find.known == self._routes.current().version:
            # The event is taken now: the routes may be others when the task begins.
            self._later(peer, frame, self._other_routes(self._routes.changed, find.wait_ms))
        else:
            peer.answer(frame.command, frame.correlation, pack(self._routes.current()))

    def _say_status(self, peer: Peer, frame: Frame) -> None:
        self._later(peer, frame, self._checked_status())

    def _list_topics(self, peer: Peer, frame: Frame) -> None:
        found = self._find_topics(unpack(frame.payload, TopicFind), peer)
        peer.answer(frame.command, frame.correlation, found)

    def _create_topic(self, peer: Peer, frame: Frame) -> None:
        wanted = unpack(frame.payload, TopicCreate)
        settings = wanted.settings
        if not is_server(peer):
            check_name("topic", wanted.name)
            check_settings(settings)
            settings = replace(settings, made_by="")
            if self._directory.topic(wanted.name) is None:
                settings = made_for(peer.use, settings, self._directory.topics)
        making = self._directory.create_topic(wanted.name, settings)
        self._later(peer, frame, self._in_time(making))

    def _make_key(self, peer: Peer, frame: Frame) -> None:
        wanted = unpack(frame.payload, TopicKeyMake)
        self._later(peer, frame, self._keys.make(wanted, peer.use))

    def _list_limits(self, peer: Peer, frame: Frame) -> None:
        apps = limited_apps(self._directory.topics())
        limits = AppLimits(limits=[app_limit(app, self._directory.topic) for app in apps])
        peer.answer(frame.command, frame.correlation, pack(limits))

    def _delete(self, peer: Peer, frame: Frame) -> None:
        name = unpack(frame.payload, TopicNamed).name
        self._later(peer, frame, self._delete_topic(name, own=is_server(peer)))

    def _lead(self, standings: StandingCommands) -> Handle:
        """People say which member leads; a server says it of its own broker group."""

        def handle(peer: Peer, frame: Frame) -> None:
            wanted = unpack(frame.payload, MemberLead)
            if peer.node is not None:
                check_own(peer.node, wanted)
            self._later(peer, frame, standings.change(wanted))

        return handle

    def _withdraw(self, peer: Peer, frame: Frame) -> None:
        """People say that a server is gone for good, a server itself that it leaves."""
        wanted = unpack(frame.payload, Withdraw)
        if not wanted.for_good:
            check_own(proven(peer), wanted)
        self._later(peer, frame, self.registrar.withdraw(wanted))

    def _place(self, peer: Peer, frame: Frame) -> None:
        wanted = unpack(frame.payload, PlaceChange)
        if wanted.action in ("stopped", "settled", "known"):
            proven(peer)
        self._later(peer, frame, self._directory.place(wanted, self._routes.masters()))

    def _later(self, peer: Peer, frame: Frame, work: Coroutine[None, None, Record]) -> None:
        waits = frame.command in WAITING
        if waits:
            try:
                self._pending.check_wait(peer, frame.command)
            except OverLimit:
                work.close()
                raise
        self._pending.begin(peer, frame, work, waits=waits)

    def _placed(self, topic: Topic) -> None:
        """Clients learn with the routes where messages go."""
        if topic.name == PLACEMENT:
            self._routes.place(topic.settings.placement)
        else:
            self._routes.set_home(topic.name, home_of(topic.settings))
            self._routes.limit_bodies(topic.name, body_limit_of(topic.settings))
            self._routes.encrypt(topic.name, encryption_of(topic.settings))

    def _gone(self, topic: Topic) -> None:
        self._routes.set_home(topic.name, None)
        self._routes.limit_bodies(topic.name, None)
        self._routes.encrypt(topic.name, None)

    async def _set_topic(self, wanted: TopicSet) -> Record:
        if wanted.name.startswith("%"):
            raise TopicNotFound(f"topic {wanted.name!r} belongs to the broker")
        changing = self._directory.change_topic(wanted.name, topic_change(wanted))
        return await self._in_time(changing)

    async def _in_time(self, change: Awaitable[Record]) -> Record:
        """Changes that a caller waits for: refused while it still waits."""
        return await self._directory.news.in_time(change)

    async def _set_limit(self, wanted: LimitSet) -> Record:
        for name, change in limit_changes(wanted).items():
            await self._directory.create_topic(name, TopicSettings())
            await self._directory.change_topic(name, topic_change(change))
        return app_limit(wanted.app, self._directory.topic)

    async def _other_routes(self, changed: asyncio.Event, wait_ms: int) -> Record:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(wait_ms, ROUTES_WAIT_MS_MAX) / 1000):
                await changed.wait()
        return self._routes.current()

    async def _delete_topic(self, name: str, *, own: bool) -> Record:
        if name.startswith("%") and not own:
            raise TopicNotFound(f"topic {name!r} belongs to the broker; delete the topic it serves")
        return await self._in_time(self._directory.delete_topic(name))

    def _find_topics(self, find: TopicFind, peer: Peer) -> bytes:
        """Identities are told to servers only, other topics to those who may see them."""
        own, shown = find.prefix.startswith("%"), shown_to(peer)
        topics: list[Topic] = []
        for name in self._directory.names_from(max(find.prefix, find.after)):
            if not name.startswith(find.prefix) or (find.limit and len(topics) == find.limit):
                break
            topic = self._directory.topic(name)
            if topic is not None and name > find.after and (own or name[:1] != "%") and shown(name):
                topics.append(topic)
        answer = pack(Topics(topics=topics))
        if len(answer) > FRAME_SIZE_MAX:
            raise TooLarge(
                f"{len(topics)} topics do not fit in an answer; ask with limit and after"
            )
        return answer

    async def _checked_status(self) -> Status:
        """Whoever asks wants to know whether the registry answers now, not a moment ago."""
        await self._directory.news.check()
        return await self.status()

    async def status(self) -> Status:
        """What this server says about itself."""
        silence = self._directory.news.silence
        identity = self._identity
        disk = await asyncio.to_thread(os.statvfs, identity.data_dir)
        return Status(
            node=identity.node,
            role="meta",
            state=f"the registry does not answer: {silence}" if silence else "ok",
            address=identity.address,
            data_dir=str(identity.data_dir),
            started_at_ms=identity.started_at_ms,
            now_ms=self._clock.now_ms(),
            disk_free=disk.f_bavail * disk.f_frsize,
            disk_size=disk.f_blocks * disk.f_frsize,
            cpu_s=own_cpu_s(),
            memory=own_memory(),
            connections=self._connections,
            log_start=0,
            log_end=0,
            registry=self._directory.description,
            cluster=self._directory.cluster,
            registry_at_ms=self._directory.news.answered_at_ms,
            insecure=identity.insecure,
            guarded=self._guard is not None,
            guarded_otherwise=self.registrar.guarded_otherwise(self._guard is not None),
            **tls_facts(identity.tls),
        )

    async def finish(self) -> None:
        """Wait for the requests under way, so that nobody is left without an answer; those that
        wait for news hear from another meta server."""
        await self._pending.finish()
