"""Logins over real sockets: the right ones, and every way in which one can be wrong (S4.7)."""

import asyncio
import json

import msgspec
import pytest

from ternmq.client.transport.user_login import UserGreeting, UserLogin
from ternmq.core.errors import (
    Forbidden,
    OverLimit,
    ProtocolError,
    TernError,
    Unauthorized,
    Unavailable,
)
from ternmq.rpc.connection import Connection
from ternmq.rpc.guarded.failed_logins import OF_USER_MAX
from ternmq.rpc.guarded.guarded_peer import bound_session
from ternmq.rpc.node_proof import Channel
from ternmq.security.access import scram
from ternmq.security.access.access_book import AccessEntry
from ternmq.security.access.secret import Secret
from ternmq.wire.messages.hello import (
    BY_SCRAM,
    PROTOCOL_VERSION,
    Auth,
    Challenge,
    Hello,
    ProvenWelcome,
    ScramSalt,
    ScramStart,
)
from ternmq.wire.messages.limits import Quota
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.node_greeting import greeting
from tests.unit.rpc.guarded.guarded_server import (
    PASSWORD,
    VERIFIER,
    WAIT,
    GuardedServer,
    user,
)
from tests.waiting import until

KEY = scram.salted(PASSWORD, VERIFIER.salt, VERIFIER.iterations)


class Talker:
    """A client that says what the test wants, frame by frame."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.talk = b""

    @classmethod
    async def open(cls, server: GuardedServer) -> "Talker":
        host, _, port = server.address.rpartition(":")
        loop = asyncio.get_running_loop()
        connection = Connection(server.address, loop)
        await loop.create_connection(lambda: connection, host, int(port))
        return cls(connection)

    async def hello(self, name: str = "shop", nonce: bytes = b"n" * 32) -> bytes:
        payload = pack(scram_hello(name, nonce))
        answer = bytes(await self._connection.call(Command.HELLO, payload))
        self.talk = payload + answer
        return answer

    async def auth(self, proof: bytes) -> bytes:
        return bytes(await self._connection.call(Command.AUTH, pack(Auth(proof=proof))))

    async def call_raw(self, command: int, payload: bytes) -> bytearray:
        return await self._connection.call(command, payload)

    async def call(self, command: int, payload: bytes = b"") -> bytes:
        return bytes(await self._connection.call(command, payload))


def scram_hello(name: str = "shop", nonce: bytes = b"n" * 32) -> Hello:
    return Hello(
        protocol=PROTOCOL_VERSION,
        app="shop",
        version="0",
        session=b"s" * 16,
        method=BY_SCRAM,
        proof=pack(ScramStart(user=name, nonce=nonce)),
    )


async def test_who_knows_the_password_is_let_in_and_the_server_proves_itself(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user())
    connection = await server.connect("shop")

    assert connection.welcome.epoch == 7
    await connection.call(Command.PING)
    await connection.close()


async def test_servers_of_the_cluster_come_in_by_their_proof_and_need_no_rights(
    server: GuardedServer,
) -> None:
    node = await Connection.open(server.address, greeting("east"), timeout=WAIT)
    await node.call(Command.REGISTER)
    await node.call(Command.TOPIC_DELETE, b"anything")

    assert server.frames == [Command.REGISTER, Command.TOPIC_DELETE]
    await node.close()


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("shop", "wrong horse"),
        ("shop", PASSWORD + " "),
        ("shop", PASSWORD.upper()),
        ("shop", " " + PASSWORD),
        ("shop", PASSWORD[:-1]),
        ("Shop", PASSWORD),
        ("shop2", PASSWORD),
        ("pattern", PASSWORD),
        ("passwordless", PASSWORD),
        ("removed", PASSWORD),
    ],
)
async def test_ten_wrong_users_and_passwords_are_told_the_same(
    server: GuardedServer, monkeypatch: pytest.MonkeyPatch, name: str, password: str
) -> None:
    monkeypatch.setattr(scram, "ITERATIONS", 4096)  # Of nobody: that we do not hash for long.
    server.book.put("shop", user())
    server.book.put("pattern", AccessEntry(verifier=VERIFIER))
    server.book.put("passwordless", AccessEntry(user=True))
    server.book.put("removed", user())
    server.book.put("removed", None)

    with pytest.raises(Unauthorized) as caught:
        await server.connect(name, password)
    assert caught.value.message == "user or password is wrong"
    assert caught.value.details["methods"] == ["scram", "token"]
    assert not server.sessions


@pytest.mark.parametrize("command", [command for command in Command if command > Command.AUTH])
async def test_without_a_login_no_command_is_heard(server: GuardedServer, command: Command) -> None:
    talker = await Talker.open(server)
    with pytest.raises(ProtocolError, match="HELLO"):
        await talker.call(command)
    assert not server.frames


async def test_a_hello_that_proves_nothing_is_told_how_to_log_in(server: GuardedServer) -> None:
    for method in ("", "Token", "SCRAM", "x" * 200):
        hello = msgspec.structs.replace(scram_hello(), method=method)
        with pytest.raises(Unauthorized, match="password_file") as caught:
            await (await Talker.open(server)).call(Command.HELLO, pack(hello))
        assert caught.value.details["methods"] == ["scram", "token"]


REPLAYS = range(10)


@pytest.mark.parametrize("which", REPLAYS)
async def test_ten_proofs_that_were_heard_or_made_up_let_nobody_in(
    server: GuardedServer, which: int
) -> None:
    server.book.put("shop", user())
    first = await Talker.open(server)
    await first.hello()
    heard = scram.client_proof(KEY, first.talk)
    welcome = unpack(await first.auth(heard), ProvenWelcome)
    second = await Talker.open(server)
    answer = await second.hello()
    own = scram.client_proof(KEY, second.talk)
    flipped = bytes([own[0] ^ 1]) + own[1:]
    proofs = [
        heard,
        welcome.proof,
        b"",
        bytes(32),
        own[:-1],
        own + b"\0",
        flipped,
        scram.client_proof(KEY, second.talk + b"\0"),
        scram.client_proof(KEY, answer),
        VERIFIER.stored_key,
    ]
    with pytest.raises(Unauthorized, match="wrong"):
        await second.auth(proofs[which])
    with pytest.raises(TernError):
        await second.auth(own)
    assert len(server.sessions) == 1


async def test_two_challenges_are_never_the_same(server: GuardedServer) -> None:
    server.book.put("shop", user())
    nonces = {unpack(await (await Talker.open(server)).hello(), Challenge).nonce for _ in range(5)}

    assert len(nonces) == 5


async def test_nobody_looks_like_a_user_to_who_asks_for_salt(server: GuardedServer) -> None:
    server.book.put("shop", user())
    salts: dict[str, bytes] = {}
    for name in ("shop", "nobody", "nobody", "somebody"):
        said = unpack(await (await Talker.open(server)).hello(name), Challenge)
        salt = unpack(said.proof, ScramSalt)
        assert len(salt.salt) == 16
        assert salts.setdefault(name, salt.salt) == salt.salt, "always the same"
    assert len(set(salts.values())) == 3


@pytest.mark.parametrize(
    "frames",
    [
        [(Command.AUTH, pack(Auth(proof=b"x")))],
        [(Command.HELLO, pack(scram_hello())), (Command.HELLO, pack(scram_hello()))],
        [(Command.HELLO, pack(scram_hello())), (Command.PING, b"")],
        [(Command.HELLO, pack(scram_hello())), (Command.STATUS, b"")],
        [(Command.HELLO, pack(scram_hello())), (Command.AUTH, b"\xc1")],
        [(Command.HELLO, pack(scram_hello())), (Command.AUTH, b"")],
        [(Command.HELLO, pack(scram_hello(nonce=b"short")))],
        [(Command.HELLO, pack(scram_hello(name="x" * 200)))],
        [(Command.HELLO, pack(msgspec.structs.replace(scram_hello(), proof=b"")))],
        [(Command.HELLO, pack(msgspec.structs.replace(scram_hello(), proof=b"\x91" * 900)))],
        [(Command.HELLO, pack(scram_hello(name="x" * 5_000)))],
        [(Command.HELLO, b"\x91" * 3_000)],
    ],
)
async def test_a_login_that_breaks_the_rules_is_closed_with_a_reason(
    server: GuardedServer, frames: list[tuple[Command, bytes]]
) -> None:
    server.book.put("shop", user())
    talker = await Talker.open(server)
    with pytest.raises(TernError) as caught:
        for command, payload in frames:
            await talker.call(command, payload)
    assert caught.value.code in ("protocol_error", "unauthorized")
    assert not server.sessions
    again = await server.connect("shop")
    await again.close()


async def test_a_server_that_does_not_know_the_user_is_left(server: GuardedServer) -> None:
    """It says welcome to whatever proof; its own is what it cannot have."""
    server.book.put("shop", user())
    other = msgspec.structs.replace(VERIFIER, server_key=bytes(32))
    server.book.put("shop", AccessEntry(user=True, verifier=other))

    with pytest.raises(Unauthorized, match="not the server"):
        await server.connect("shop")


async def test_who_is_asked_for_a_password_over_a_wire_that_others_hear_does_not_answer() -> None:
    async def call(command: int, payload: bytes) -> bytearray:
        raise AssertionError("nothing is said")

    login = UserGreeting(scram_hello(), UserLogin("shop", Secret(PASSWORD)))
    with pytest.raises(Unauthorized, match="terns://"):
        await login.greet(call, "10.0.0.1:7700", Channel(private=False))


async def test_a_proof_is_bound_to_the_certificate_that_the_server_showed(
    server: GuardedServer,
) -> None:
    """Who sits in between with another certificate cannot pass it on."""
    server.book.put("shop", user())
    talker = await Talker.open(server)
    login = UserGreeting(scram_hello(), UserLogin("shop", Secret(PASSWORD)))
    with pytest.raises(Unauthorized, match="wrong"):
        await login.greet(
            talker.call_raw, server.address, Channel(private=True, shown=b"of another")
        )


async def test_a_user_is_only_the_applications_that_it_may_be(server: GuardedServer) -> None:
    server.book.put("shop", user(apps=("shop", "web-*")))
    await (await server.connect("shop", app="web-1")).close()
    for app in ("bank", "webshop", "%delay"):
        with pytest.raises(Forbidden, match="cannot be the application"):
            await server.connect("shop", app=app)


async def test_the_same_session_of_another_user_is_another_session(server: GuardedServer) -> None:
    server.book.put("shop", user())
    server.book.put("eve", user(apps=("*",)))
    for name in ("shop", "shop", "eve"):
        await (await server.connect(name)).close()
    one, again, stolen = server.sessions

    assert one == again == bound_session("shop", b"s" * 16)
    assert stolen != one
    await (await server.connect("eve", session=one)).close()
    assert server.sessions[-1] != one, "what a list shows of a session is of no use"


async def test_who_fails_too_often_waits_and_others_do_not(server: GuardedServer) -> None:
    server.book.put("shop", user())
    server.book.put("billing", user())
    for _ in range(OF_USER_MAX):
        talker = await Talker.open(server)
        await talker.hello()
        with pytest.raises(Unauthorized):
            await talker.auth(b"")
    with pytest.raises(OverLimit) as caught:
        await server.connect("shop")
    assert caught.value.wait is not None

    await (await server.connect("billing")).close()


async def test_who_says_hello_often_before_it_guesses_has_ten_guesses_as_well(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user())
    talkers = [await Talker.open(server) for _ in range(OF_USER_MAX + 3)]
    for talker in talkers:
        await talker.hello()
    for talker in talkers[:OF_USER_MAX]:
        with pytest.raises(Unauthorized):
            await talker.auth(b"")
    with pytest.raises(OverLimit):
        await talkers[-3].auth(b"")
    with pytest.raises(OverLimit):  # The right one: also that it is right is not told.
        await talkers[-2].auth(scram.client_proof(KEY, talkers[-2].talk))
    with pytest.raises(OverLimit):
        await (await Talker.open(server)).hello()
    assert not server.sessions
    await server.guard.audit.close()
    text = server.audit_file.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["user"], line["result"], line.get("times")) for line in lines] == [
        ("shop", "unauthorized", None),
        ("shop", "over_limit", None),
        ("shop", "unauthorized", OF_USER_MAX - 1),
        ("shop", "over_limit", 2),
    ]


async def test_a_user_has_as_many_connections_as_its_quota_says(server: GuardedServer) -> None:
    server.book.put("shop", user(connections_max=2))
    first, second = await server.connect("shop"), await server.connect("shop")
    with pytest.raises(OverLimit, match="tern quota set shop"):
        await server.connect("shop")
    await first.close()
    third = await until(lambda: server.connect("shop"), ignoring=OverLimit)
    await second.close()
    await third.close()


async def test_requests_of_all_connections_of_a_user_count_together_until_they_are_answered(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user(quota=Quota(waiting_max=2)))
    first, second = await server.connect("shop"), await server.connect("shop")
    for _ in range(5):
        await first.call(Command.PULL)
    with pytest.raises(Unauthorized):
        await first.call(Command.REGISTER)
    use = server.guard.use_of("shop")
    assert (use.connections, use.waiting) == (2, 0), "answers and refusals have been counted"
    use.waiting = 2
    with pytest.raises(OverLimit, match="--waiting N") as caught:
        await second.call(Command.PULL)
    assert caught.value.details["wait_ms"]
    use.waiting = 0
    await second.call(Command.PULL)
    for connection in (first, second):
        await connection.close()
    await until(lambda: use.connections == 0)
    assert (use.waiting, use.held) == (0, 0)


async def test_the_quota_of_everybody_counts_and_changes_while_somebody_is_there(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user())
    server.book.put("*", AccessEntry(quota=Quota(connections_max=1, rate=5)))
    first = await server.connect("shop")
    with pytest.raises(OverLimit, match="its 1 connections"):
        await server.connect("shop")
    server.book.put("shop", user(quota=Quota(connections_max=0)))
    second = await server.connect("shop")
    use = server.guard.use_of("shop")
    assert use.sending is not None
    server.book.put("*", None)
    assert use.sending is None
    for connection in (first, second):
        await connection.close()


async def test_a_removed_user_is_closed_with_the_reason(server: GuardedServer) -> None:
    server.book.put("shop", user())
    connection = await server.connect("shop")
    server.book.put("shop", None)
    await until(lambda: connection.closed)

    with pytest.raises(Unauthorized, match="no user 'shop' any more"):
        await connection.call(Command.STATUS)


async def test_after_a_day_without_a_registry_nobody_is_let_in_or_stays(
    server: GuardedServer,
) -> None:
    server.book.put("shop", user())
    connection = await server.connect("shop")
    server.topics.silent = 23 * 3600.0
    await connection.call(Command.PING)
    server.topics.silent = 25 * 3600.0
    await until(lambda: connection.closed)
    with pytest.raises(Unavailable, match="for a day"):
        await server.connect("shop")


async def test_the_audit_log_has_logins_and_failures_and_no_proofs(server: GuardedServer) -> None:
    server.book.put("shop", user())
    await (await server.connect("shop")).close()
    with pytest.raises(Unauthorized):
        await server.connect("shop", "canary-password-1")
    await server.guard.audit.close()
    text = server.audit_file.read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]

    assert [(line["event"], line["result"]) for line in lines] == [
        ("login", "ok"),
        ("login", "unauthorized"),
    ]
    assert "canary" not in text
