"""Tokens of a real issuer over real sockets: wrong users, wrong rights, ended and replayed ones;
new keys, and an issuer that is away (S3, S4.7)."""

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import OctKey, RSAKey

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig, Forbidden, TernError, Unauthorized, Unavailable
from ternmq.core.lifecycle import background
from ternmq.discovery.oidc_keys import OidcKeys
from ternmq.rpc.connection import Connection
from ternmq.security.access.access_book import AccessEntry
from ternmq.security.access.oidc import SKEW_S, OidcConfig, read_keys
from ternmq.wire.messages.hello import Auth
from ternmq.wire.messages.limits import TokenCreate, UserFind
from ternmq.wire.messages.read import Read
from ternmq.wire.messages.topics import TopicNamed
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.oidc_issuer import OidcIssuer, issuing
from tests.unit.client.transport.test_token_login import connect
from tests.unit.rpc.guarded.guarded_server import GuardedServer, guarded_server, user
from tests.unit.rpc.guarded.test_guard import batch
from tests.waiting import until

Make = Callable[[OidcIssuer], str]
OTHER = RSAKey.generate_key(2048, {"kid": "one"})


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with issuing() as running:
        yield running


@pytest.fixture
def keys(issuer: OidcIssuer) -> OidcKeys:
    monotonic = SystemClock().monotonic
    return OidcKeys(OidcConfig(**issuer.settings), monotonic=monotonic, again_s=0.0)


@pytest.fixture
async def server(tmp_path: Path, keys: OidcKeys) -> AsyncIterator[GuardedServer]:
    async with guarded_server(tmp_path, issuer=keys) as running, background(oidc=keys.run):
        running.book.put("shop", user("allow publish t", "allow read t"))
        running.book.put("bank", user("allow publish t"))
        running.book.put("team-*", AccessEntry())
        await until(lambda: keys.known > 0)
        yield running


async def test_a_token_of_the_issuer_is_a_login_with_the_rights_of_its_user(
    server: GuardedServer, issuer: OidcIssuer
) -> None:
    for token in (issuer.token(), issuer.token(aud=["others", "tern-orders"])):
        connection = await connect(server, token)
        await connection.call(Command.PUBLISH, batch("t"))
        await connection.close()


@pytest.mark.parametrize(
    ("named", "url_user"),
    [
        ("bank", "shop"),
        ("shop", "bank"),
        ("Shop", "Shop"),
        ("nobody", "nobody"),
        ("team-7", "team-7"),
        ("team-*", "team"),
        ("%broker", "shop"),
        ("", "shop"),
        (7, "shop"),
        (None, "shop"),
        (["shop"], "shop"),
    ],
)
async def test_eleven_wrong_users_are_refused(
    server: GuardedServer, issuer: OidcIssuer, named: Any, url_user: str
) -> None:
    token = issuer.token(sub=named)
    with pytest.raises(Unauthorized):
        await connect(server, token, name=url_user)
    assert not server.sessions


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        (Command.PUBLISH, batch("u")),
        (Command.PUBLISH, batch("t", app="bank")),
        (Command.PUBLISH_ONCE, batch("u")),
        (Command.HALF, batch("u")),
        (Command.READ, pack(Read(topic="u", sequence=0, rows_max=1, size_max=1))),
        (Command.READ, pack(Read(topic="%access.admin", sequence=0, rows_max=1, size_max=1))),
        (Command.TOPIC_DELETE, pack(TopicNamed(name="t"))),
        (Command.GRANT_SET, b""),
        (Command.USER_LIST, pack(UserFind(name="bank"))),
        (Command.TOKEN_CREATE, pack(TokenCreate(user="shop", expires_in_ms=9_000))),
    ],
)
async def test_ten_things_without_a_right_are_refused(
    server: GuardedServer, issuer: OidcIssuer, command: Command, payload: bytes
) -> None:
    server.topics.there.add("u")
    connection = await connect(server, issuer.token())
    with pytest.raises(TernError) as caught:
        await connection.call(command, payload)
    assert isinstance(caught.value, Forbidden), caught.value
    assert command not in server.frames
    await connection.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": -SKEW_S - 1},
        {"exp": -3600.0},
        {"exp": None},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": -1e12},
        {"nbf": SKEW_S + 5},
        {"nbf": "now"},
        {"iat": SKEW_S + 5},
        {"iat": [1]},
    ],
)
async def test_ten_tokens_out_of_their_time_are_refused(
    server: GuardedServer, issuer: OidcIssuer, changes: dict[str, Any]
) -> None:
    now = time.time()
    times: dict[str, Any] = {
        name: now + value if isinstance(value, float | int) and value is not True else value
        for name, value in changes.items()
    }
    with pytest.raises(Unauthorized):
        await connect(server, issuer.token(**times))
    assert not server.sessions


async def test_a_minute_of_difference_between_clocks_is_forgiven_and_then_the_connection_ends(
    server: GuardedServer, issuer: OidcIssuer
) -> None:
    connection = await connect(server, issuer.token(exp=time.time() - SKEW_S + 1.0))
    await until(lambda: connection.closed)
    with pytest.raises(Unauthorized, match="has ended"):
        await connection.call(Command.PING)


def _unsigned(issuer: OidcIssuer, alg: str = "none") -> str:
    header, body = ({"alg": alg, "kid": "one"}, issuer.claims())
    parts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, body)
    ]
    return b".".join((*parts, b"")).decode()


def _hmac(issuer: OidcIssuer) -> str:
    """The public key taken for the secret of an HMAC."""
    talk = _unsigned(issuer, "HS256").rstrip(".")
    made = hmac.digest(issuer.keys[0].as_pem(private=False), talk.encode(), "sha256")
    return f"{talk}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


REPLAYED: dict[str, Make] = {
    "to another audience": lambda issuer: issuer.token(aud="other-service"),
    "without an audience": lambda issuer: issuer.token(aud=None),
    "of another issuer": lambda issuer: issuer.token(iss="https://elsewhere"),
    "signed by another key of the same id": lambda issuer: issuer.signed(issuer.claims(), OTHER),
    "without a signature": _unsigned,
    "none in capitals": lambda issuer: _unsigned(issuer, "None"),
    "an HMAC by the public key": _hmac,
    "an HMAC by an own key": lambda issuer: issuer.signed(
        issuer.claims(), OctKey.generate_key(256, {"kid": "one"})
    ),
    "the body of one, the signature of another": lambda issuer: ".".join(
        (*issuer.token("bank").split(".")[:2], issuer.token().split(".")[2])
    ),
    "with its own key": lambda issuer: issuer.signed(
        issuer.claims(), OTHER, jwk=OTHER.as_dict(private=False)
    ),
    "cut short": lambda issuer: issuer.token()[:-9],
    "an algorithm that is not listed": lambda issuer: issuer.signed(issuer.claims(), alg="PS256"),
}


@pytest.mark.parametrize("how", REPLAYED)
async def test_twelve_tokens_that_were_made_for_or_by_others_are_refused(
    server: GuardedServer, issuer: OidcIssuer, how: str
) -> None:
    with pytest.raises(Unauthorized):
        await connect(server, REPLAYED[how](issuer))
    assert not server.sessions


async def test_the_next_token_is_of_the_same_user_on_the_same_connection(
    server: GuardedServer, issuer: OidcIssuer
) -> None:
    connection = await connect(server, issuer.token(exp=time.time() - SKEW_S + 2.0))
    with pytest.raises(Unauthorized, match="not of 'shop'"):
        await connection.call(Command.AUTH, pack(Auth(proof=issuer.token("bank").encode())))
    await connection.call(Command.AUTH, pack(Auth(proof=issuer.token().encode())))
    ends = time.monotonic() + 2.5
    await until(lambda: time.monotonic() > ends)
    await connection.call(Command.PUBLISH, batch("t"))
    await connection.close()


async def test_all_tokens_of_a_user_are_revoked_also_those_of_the_issuer(
    server: GuardedServer, issuer: OidcIssuer
) -> None:
    connection = await connect(server, issuer.token())
    since = SystemClock().now_ms()
    entry = server.book.user("shop")
    assert entry is not None
    server.book.put("shop", AccessEntry(user=True, tokens_since_ms=since))
    await until(lambda: connection.closed)
    with pytest.raises(Unauthorized, match="revoked"):
        await connect(server, issuer.token())
    fresh = await connect(server, issuer.token(iat=since / 1000 + 1))
    await fresh.close()


async def test_new_keys_are_asked_for_when_a_token_names_one_and_the_last_good_ones_are_kept(
    server: GuardedServer, issuer: OidcIssuer, keys: OidcKeys
) -> None:
    before, old = issuer.token(), issuer.keys
    try:
        issuer.broken = True
        asked = issuer.asked
        keys.ask()
        await until(lambda: issuer.asked > asked)
        await (await connect(server, before)).close()  # It said nothing of use: the old ones count.
        issuer.broken = False
        issuer.rotate()

        async def known() -> Connection:
            return await connect(server, issuer.token())

        await (await until(known, ignoring=Unavailable)).close()
        with pytest.raises((Unauthorized, Unavailable)):
            await connect(server, before)
    finally:
        issuer.keys, issuer.broken = old, False


async def test_made_up_key_ids_make_no_traffic(issuer: OidcIssuer) -> None:
    keys = OidcKeys(OidcConfig(**issuer.settings), monotonic=SystemClock().monotonic)
    async with background(oidc=keys.run):
        await until(lambda: keys.known > 0)
        asked = issuer.asked
        for number in range(50):
            token = issuer.signed(issuer.claims(), kid=f"k{number}")
            with pytest.raises(Unauthorized, match="no such key"):
                keys.claims(token, 0)
        assert issuer.asked == asked


@pytest.mark.parametrize(
    "changes",
    [
        {"oidc_algorithms": "none"},
        {"oidc_algorithms": "RS256,HS256"},
        {"oidc_algorithms": ""},
        {"oidc_audience": ""},
        {"oidc_jwks_url": "http://elsewhere.example/keys"},
        {"oidc_issuer": ""},
    ],
)
def test_settings_that_would_let_others_in_are_refused(changes: dict[str, str]) -> None:
    good = {
        "oidc_issuer": "https://login.example",
        "oidc_audience": "tern",
        "oidc_jwks_url": "https://login.example/keys",
    }
    with pytest.raises(BadConfig, match="oidc_"):
        OidcConfig(**(good | changes))


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', b"\xff"],
)
def test_what_is_no_list_of_public_keys_is_not_used(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"keys|key in it"):
        read_keys(document)
