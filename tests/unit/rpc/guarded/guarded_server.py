"""A listener with a guard over real sockets, with a book that a test fills; its handler answers
everything that comes through."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ternmq.client.transport.user_login import UserGreeting, UserLogin
from ternmq.core.clock import SystemClock
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection
from ternmq.rpc.guarded.guard import Guard, Issuer
from ternmq.rpc.guarded.guarded_peer import GuardedHandler
from ternmq.rpc.node_proof import NodeGate
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import ServerLimits, listening
from ternmq.security.access.access_book import AccessBook, AccessEntry
from ternmq.security.access.audit import AuditLog
from ternmq.security.access.rights import Right, check_grant
from ternmq.security.access.scram import make_verifier
from ternmq.security.access.secret import Secret
from ternmq.security.tls.server_tls import ServerTls
from ternmq.wire.actions import Action
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome
from ternmq.wire.messages.limits import Grant, Quota, Verifier
from tests.node_greeting import SECRET

ROUNDS = 4096
PASSWORD = "correct horse"
VERIFIER: Verifier = make_verifier(PASSWORD, bytes(16), iterations=ROUNDS)
WAIT = 10.0


def grants(*lines: str) -> list[Grant]:
    """`allow publish order.*`, `deny * *` …"""
    found = []
    for line in lines:
        rule, action, resource = line.split()
        found.append(check_grant(Grant(action=action, resource=resource, deny=rule == "deny")))
    return found


def user(
    *lines: str,
    apps: tuple[str, ...] = (),
    connections_max: int = 0,
    quota: Quota | None = None,
) -> AccessEntry:
    return AccessEntry(
        user=True,
        verifier=VERIFIER,
        apps=list(apps),
        grants=grants(*lines),
        connections_max=connections_max,
        quota=quota or Quota(),
    )


@dataclass
class Topics:
    """Implements `TopicFacts`."""

    there: set[str] = field(default_factory=lambda: {"t"})
    silent: float = 0.0

    def exists(self, topic: str) -> bool:
        return topic in self.there

    def owners(self, hidden: str, action: Action) -> list[Right] | None:
        looks = hidden == "%dead.g" and action is Action.READ
        return [(Action.OPERATE, "group", "g")] if looks else None

    def letter_owners(self, group: str) -> list[Right]:
        return [(Action.OPERATE, "group", group)]

    def silent_s(self) -> float:
        return self.silent


@dataclass
class GuardedServer:
    """What a test has in hand."""

    address: str
    book: AccessBook
    topics: Topics
    guard: Guard
    audit_file: Path
    sessions: list[bytes] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    answers: dict[int, Callable[[], bytes]] = field(default_factory=dict)

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        self.sessions.append(hello.session)
        return Welcome(protocol=PROTOCOL_VERSION, version="0", role="broker", node="n", epoch=7)

    def frame(self, peer: Peer, frame: Frame) -> None:
        self.frames.append(frame.command)
        answer = self.answers.get(frame.command, lambda: b"")
        peer.answer(frame.command, frame.correlation, answer())

    def lost(self, peer: Peer) -> None:
        pass

    async def connect(
        self,
        name: str,
        password: str = PASSWORD,
        *,
        app: str = "",
        session: bytes = b"s" * 16,
    ) -> Connection:
        hello = Hello(protocol=PROTOCOL_VERSION, app=app or name, version="0", session=session)
        greeting = UserGreeting(hello, UserLogin(name, Secret(password)))
        return await Connection.open(self.address, greeting, timeout=WAIT)


@asynccontextmanager
async def guarded_server(
    folder: Path,
    tls: ServerTls | None = None,
    connections_max: int = 10_000,
    issuer: Issuer | None = None,
) -> AsyncIterator[GuardedServer]:
    clock, book, topics = SystemClock(), AccessBook(), Topics()
    path = folder / "audit.log"
    audit = AuditLog(path, server="broker", now_ms=clock.now_ms)
    guard = Guard(
        book,
        topics,
        audit=audit,
        secret=b"alike",
        monotonic=clock.monotonic,
        now_ms=clock.now_ms,
        issuer=issuer,
    )
    server = GuardedServer("", book, topics, guard, path)
    gate = NodeGate(SECRET, "broker", "main", now=clock.monotonic)
    async with listening(
        "127.0.0.1",
        0,
        GuardedHandler(server, guard),
        limits=ServerLimits(sweep=0.05, linger=0.2, connections_max=connections_max),
        clock=clock,
        gate=gate,
        tls=tls,
    ) as listener:
        server.address = join_address(*listener.address)
        yield server
    await audit.close()
