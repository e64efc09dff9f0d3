"""Tokens over real sockets: wrong ones, ended ones, replayed ones, narrow ones; and the next token
on a connection that stands (S4.7)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

import msgspec
import pytest

from ternmq.client.transport.token_login import TokenLogin
from ternmq.core.clock import SystemClock
from ternmq.core.errors import Forbidden, ProtocolError, Unauthorized, Unavailable
from ternmq.rpc.connection import Connection
from ternmq.rpc.guarded.guard import STALE_S
from ternmq.rpc.guarded.guarded_peer import GuardedPeer
from ternmq.rpc.node_proof import Channel
from ternmq.security.access.access_book import TOKEN_KEYS, AccessEntry
from ternmq.security.access.secret import Secret
from ternmq.security.access.token import ISSUER, TokenClaims, key_id, make_token, public_key
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Auth, Hello, TokenRenewed
from ternmq.wire.messages.limits import AccessToken, TokenCreate, UserSet
from ternmq.wire.messages.pull import Join
from ternmq.wire.messages.read import Read
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.unit.rpc.guarded.guarded_server import VERIFIER, WAIT, GuardedServer, grants, user
from tests.unit.rpc.guarded.test_guard import batch
from tests.waiting import until

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
CLUSTER = "c1"
HOUR_S = 3600.0
NOW_S = SystemClock().now_ms() / 1000
CLAIMS = TokenClaims(
    iss=ISSUER, sub="shop", aud=CLUSTER, jti="id-1", iat=NOW_S - 10, exp=NOW_S + 24 * HOUR_S
)
HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0", session=b"s" * 16)


def keys(*private: bytes, cluster: str = CLUSTER) -> AccessEntry:
    public = [public_key(each) for each in private]
    return AccessEntry(cluster=cluster, token_keys={key_id(each): each for each in public})


def claims(**changes: object) -> TokenClaims:
    return msgspec.structs.replace(CLAIMS, **changes)


def good(**changes: object) -> str:
    return make_token(claims(**changes), KEY)


def read(topic: str) -> bytes:
    return pack(Read(topic=topic, sequence=0, rows_max=1, size_max=1))


@pytest.fixture(autouse=True)
def filled(server: GuardedServer) -> None:
    server.book.put(TOKEN_KEYS, keys(KEY))
    server.book.put("shop", user("allow publish t", "allow read t", "allow subscribe t"))


async def connect(
    server: GuardedServer, token: str | Callable[[], str], *, name: str = "shop"
) -> Connection:
    def told() -> Secret:
        return Secret(token() if callable(token) else token)

    login = TokenLogin(name, told, renews=callable(token))
    return await Connection.open(server.address, login.greeting(HELLO), timeout=WAIT)


async def test_a_token_is_a_login_with_the_rights_of_its_user(server: GuardedServer) -> None:
    connection = await connect(server, good())
    await connection.call(Command.READ, read("t"))
    server.topics.there.add("u")
    with pytest.raises(Forbidden, match="'shop' may not read on topic 'u'"):
        await connection.call(Command.READ, read("u"))
    await connection.close()


# Ten wrong ones.


def _part(text: str) -> str:
    return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _with_header(token: str, **changes: object) -> str:
    header, body, signature = token.split(".")
    said = json.loads(urlsafe_b64decode(header + "=="))
    return ".".join((_part(json.dumps(said | changes)), body, signature))


def _with_body(token: str, **changes: object) -> str:
    header, body, signature = token.split(".")
    said = json.loads(urlsafe_b64decode(body + "==="))
    return ".".join((header, _part(json.dumps(said | changes)), signature))


def _hmac_by_the_public_key(token: str) -> str:
    """The old trick: the public key taken as the secret of an HMAC."""
    import hmac

    said = _with_header(token, alg="HS256").rpartition(".")[0]
    made = hmac.digest(public_key(KEY).encode(), said.encode(), "sha256")
    return f"{said}.{urlsafe_b64encode(made).rstrip(b'=').decode()}"


WRONG: dict[str, Callable[[str], str]] = {
    "empty": lambda token: "",
    "no token": lambda token: "correct horse",
    "too long": lambda token: token + "A" * 3000,
    "another key": lambda token: make_token(CLAIMS, OTHER_KEY),
    "no signature": lambda token: token.rpartition(".")[0] + ".",
    "alg none": lambda token: _with_header(token, alg="none").rpartition(".")[0] + ".",
    "alg HS256": _hmac_by_the_public_key,
    "a header that we do not know": lambda token: _with_header(token, crit=["exp"]),
    "another user in it": lambda token: _with_body(token, sub="admin"),
    "a later end in it": lambda token: _with_body(token, exp=NOW_S + 9e9),
    "one bit of the signature": lambda token: token[:-4] + ("AAAA" if token[-4] != "A" else "BBBB"),
    "written otherwise": lambda token: token + "==",
    "its key has another id": lambda token: _with_header(token, kid="0" * 16),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_token_is_refused(server: GuardedServer, wrong: Callable[[str], str]) -> None:
    server.book.put("admin", user("allow * *", apps=("*",)))
    with pytest.raises(Unauthorized, match=r"not made by this cluster|no token of ours"):
        await connect(server, wrong(good()))
    assert not server.sessions


# Ten that have ended, or not begun.


@pytest.mark.parametrize("ago", [0.001, 0.5, 1, 2, 30, 60, 61, 3600, 86400, 1e9])
async def test_an_ended_token_is_refused(server: GuardedServer, ago: float) -> None:
    now = SystemClock().now_ms() / 1000
    with pytest.raises(Unauthorized, match="has ended"):
        await connect(server, good(iat=now - ago - 10, exp=now - ago))
    assert not server.sessions


async def test_a_token_from_the_future_is_refused_and_a_little_ahead_is_not(
    server: GuardedServer,
) -> None:
    with pytest.raises(Unauthorized, match="future"):
        await connect(server, good(iat=NOW_S + 12 * HOUR_S))
    await (await connect(server, good(iat=SystemClock().now_ms() / 1000 + 20))).close()


# Ten replayed where, when or as whom they are not good.


def _recreated(server: GuardedServer) -> None:
    later = msgspec.structs.replace(user("allow * *"), tokens_since_ms=int(NOW_S * 1000))
    server.book.put("shop", None)
    server.book.put("shop", later)


def _revoked(server: GuardedServer, token_id: str = "id-1") -> None:
    kept = AccessToken(id=token_id, user="shop", issued_at_ms=0, expires_at_ms=2**50, revoked=True)
    server.book.put("shop", msgspec.structs.replace(user("allow * *"), tokens=[kept]))


REPLAYS: dict[str, tuple[Callable[[GuardedServer], object], dict[str, object]]] = {
    "to another cluster with this key": (lambda server: None, {"aud": "c2"}),
    "to no cluster": (lambda server: None, {"aud": ""}),
    "of another issuer": (lambda server: None, {"iss": "elsewhere"}),
    "to a cluster with other keys": (
        lambda server: server.book.put(TOKEN_KEYS, keys(OTHER_KEY)),
        {},
    ),
    "to a restored cluster of another name": (
        lambda server: server.book.put(TOKEN_KEYS, keys(KEY, cluster="c3")),
        {},
    ),
    "to a cluster that has no keys": (lambda server: server.book.put(TOKEN_KEYS, None), {}),
    "after its user was removed": (lambda server: server.book.put("shop", None), {}),
    "after a user of that name was made again": (_recreated, {}),
    "after it was revoked": (_revoked, {}),
    "as the token of a pattern": (
        lambda server: server.book.put("s*", AccessEntry()),
        {"sub": "s*"},
    ),
    "as the token of a server": (lambda server: None, {"sub": "%broker"}),
}


@pytest.mark.parametrize(("happens", "changes"), REPLAYS.values(), ids=REPLAYS.keys())
async def test_a_replayed_token_is_refused(
    server: GuardedServer,
    happens: Callable[[GuardedServer], object],
    changes: dict[str, object],
) -> None:
    happens(server)
    with pytest.raises(Unauthorized):
        await connect(server, good(**changes))
    assert not server.sessions


async def test_a_token_is_good_for_its_own_user_and_application_only(
    server: GuardedServer,
) -> None:
    server.book.put("bank", user("allow * *", apps=("shop",)))
    with pytest.raises(Unauthorized, match="is of 'bank', not of 'shop'"):
        await connect(server, good(sub="bank"))
    server.book.put("other", user("allow * *"))
    with pytest.raises(Forbidden, match="cannot be the application 'shop'"):
        await connect(server, good(sub="other"), name="other")


async def test_a_token_is_not_sent_where_others_listen() -> None:
    async def call(command: int, payload: bytes) -> bytearray:
        raise AssertionError("it was sent")

    login = TokenLogin("shop", lambda: Secret("t"), renews=False)
    with pytest.raises(Unauthorized, match="others could listen"):
        await login.greeting(HELLO).greet(call, "10.0.0.1:7700", Channel(private=False))


async def test_a_server_takes_no_token_where_others_listen(
    server: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the client had come in the clear from another machine."""
    monkeypatch.setattr(GuardedPeer, "private", False)
    with pytest.raises(Unauthorized, match=r"over TLS only.*revoke this one"):
        await connect(server, good())
    assert not server.sessions


async def test_nobody_comes_in_by_what_was_true_yesterday(server: GuardedServer) -> None:
    server.topics.silent = STALE_S + 1
    with pytest.raises(Unavailable, match="nobody could say"):
        await connect(server, good())


# Ten wrong rights.

NARROW = grants("allow publish t", "allow subscribe u", "allow describe v")


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (Command.READ, read("t")),
        (Command.READ, read("v")),
        (Command.PUBLISH, batch("u")),
        (Command.PUBLISH, batch("v")),
        (Command.JOIN, pack(Join(group="shop", topics=["t"]))),
        (Command.JOIN, pack(Join(group="bank", topics=["u"]))),
        (Command.USER_SET, pack(UserSet(name="new", create=True, verifier=VERIFIER))),
        (Command.USER_SET, pack(UserSet(name="shop", verifier=VERIFIER))),
        (Command.TOKEN_CREATE, pack(TokenCreate(user="shop", expires_in_ms=1000))),
        (Command.TOKEN_CREATE, pack(TokenCreate(user="admin", expires_in_ms=1000))),
    ],
    ids=range(10),  # Payloads are drawn at random: each worker would name them otherwise.
)
async def test_a_narrowed_token_does_less_than_its_user(
    server: GuardedServer, command: Command, payload: bytes
) -> None:
    server.topics.there |= {"u", "v"}
    server.book.put("shop", user("allow * *"))
    connection = await connect(server, good(narrow=NARROW))
    with pytest.raises(Forbidden):
        await connection.call(command, payload)
    assert not server.frames
    await connection.call(Command.PUBLISH, batch("t"))
    await connection.call(Command.JOIN, pack(Join(group="shop", topics=["u"])))
    await connection.close()


async def test_a_token_never_does_more_than_its_user(server: GuardedServer) -> None:
    server.topics.there.add("u")
    connection = await connect(server, good(narrow=grants("allow * *")))
    await connection.call(Command.READ, read("t"))
    with pytest.raises(Forbidden):
        await connection.call(Command.READ, read("u"))
    server.book.put("shop", user("allow read *", "deny read t"))
    await until(lambda: connection.closed)
    await connection.close()


async def test_who_came_by_a_token_cannot_stay_longer_by_a_new_password_or_token(
    server: GuardedServer,
) -> None:
    """By the password of the same user both are allowed."""
    change = pack(UserSet(name="shop", verifier=VERIFIER))
    create = pack(TokenCreate(user="shop", expires_in_ms=1000))
    connection, by_password = await connect(server, good()), await server.connect("shop")
    for command, payload in ((Command.USER_SET, change), (Command.TOKEN_CREATE, create)):
        with pytest.raises(Forbidden, match="grant"):
            await connection.call(command, payload)
        await by_password.call(command, payload)
    await connection.close()
    await by_password.close()


# The end, and the next one.


async def test_at_its_end_the_connection_is_closed_as_unauthorized(
    server: GuardedServer,
) -> None:
    now = SystemClock().now_ms() / 1000
    connection = await connect(server, good(exp=now + 0.3))
    await until(lambda: connection.closed)
    assert SystemClock().now_ms() / 1000 >= now + 0.3, "not earlier"
    with pytest.raises(Unauthorized, match="has ended"):
        await connection.call(Command.READ, read("t"))
    await connection.close()


@pytest.mark.parametrize("all_of_them", [False, True])
async def test_a_revoked_token_ends_its_connection_and_no_other(
    server: GuardedServer, all_of_them: bool
) -> None:
    connection = await connect(server, good())
    other, by_password = await connect(server, good(jti="id-2")), await server.connect("shop")
    if all_of_them:
        now_ms = SystemClock().now_ms()
        server.book.put(
            "shop", msgspec.structs.replace(user("allow read t"), tokens_since_ms=now_ms)
        )
    else:
        _revoked(server)
    await until(lambda: connection.closed)
    with pytest.raises(Unauthorized, match="was revoked"):
        await connection.call(Command.READ, read("t"))
    await by_password.call(Command.READ, read("t"))
    if all_of_them:
        await until(lambda: other.closed)
    else:
        await other.call(Command.READ, read("t"))
    for each in (connection, other, by_password):
        await each.close()


async def test_the_next_token_keeps_the_connection_with_everything_on_it(
    server: GuardedServer,
) -> None:
    """The client sends it by itself, before the first one ends."""
    now = SystemClock().now_ms() / 1000
    first, asked = iter([good(exp=now + 2)]), []

    def source() -> str:
        asked.append(True)
        return next(first, good(jti="id-2"))

    connection = await connect(server, source)
    await until(lambda: len(asked) > 1)
    await until(lambda: SystemClock().now_ms() / 1000 > now + 2.2)
    await connection.call(Command.READ, read("t"))
    assert len(server.sessions) == 1, "the same connection"
    await connection.close()


@pytest.mark.parametrize(
    ("token", "error"),
    [
        ("nonsense", Unauthorized),
        (make_token(CLAIMS, OTHER_KEY), Unauthorized),
        (good(sub="bank"), Unauthorized),
        (good(exp=NOW_S - 5), Unauthorized),
        (good(narrow=grants("allow publish t")), Forbidden),
    ],
)
async def test_a_wrong_next_token_changes_nothing(
    server: GuardedServer, token: str, error: type[Exception]
) -> None:
    server.book.put("bank", user("allow * *"))
    connection = await connect(server, good())
    await connection.call(Command.READ, read("t"))
    with pytest.raises(error):
        await connection.call(Command.AUTH, pack(Auth(proof=token.encode())))
    await connection.call(Command.READ, read("t"))
    wider = await connection.call(Command.AUTH, pack(Auth(proof=good(jti="id-3").encode())))
    assert unpack(wider, TokenRenewed).ends_in_ms > 0
    await connection.close()


async def test_who_came_by_a_password_has_no_next_token(server: GuardedServer) -> None:
    connection = await server.connect("shop")
    with pytest.raises(ProtocolError, match="not expected after HELLO"):
        await connection.call(Command.AUTH, pack(Auth(proof=good().encode())))
    await connection.close()


async def test_a_token_is_in_no_audit_line(server: GuardedServer) -> None:
    token = good()
    await (await connect(server, token)).close()
    with pytest.raises(Unauthorized):
        await connect(server, token + "x")
    await until(lambda: server.audit_file.exists())
    await server.guard.audit.close()
    text = server.audit_file.read_text()
    assert "shop" in text
    assert token[:20] not in text
