"""Tokens as bytes: another implementation of JWT reads and makes the same (joserfc)."""

import json
from base64 import urlsafe_b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import OKPKey

from ternmq.core.errors import Unauthorized
from ternmq.security.access.token import (
    ISSUER,
    TokenClaims,
    key_id,
    make_token,
    public_key,
    read_token,
)
from ternmq.wire.messages.limits import Grant

KEY = bytes(range(32))
PUBLIC = public_key(KEY)
KEYS = {key_id(PUBLIC): PUBLIC}
CLAIMS = TokenClaims(
    iss=ISSUER,
    sub="shop",
    aud="c1",
    jti="1",
    iat=1000.5,
    exp=2000.25,
    narrow=[Grant(action="publish", resource="topic:order.*")],
)
NOW_MS = 1_500_000


def theirs() -> OKPKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem = Ed25519PrivateKey.from_private_bytes(KEY).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    return OKPKey.import_key(pem)


def read(token: str, now_ms: int = NOW_MS) -> TokenClaims:
    return read_token(token, KEYS, cluster="c1", now_ms=now_ms)


@pytest.mark.filterwarnings("ignore")  # They would rather call it Ed25519 than EdDSA.
def test_another_implementation_reads_and_makes_the_same() -> None:
    token = make_token(CLAIMS, KEY)
    told = jwt.decode(token, theirs(), algorithms=["EdDSA"])
    assert told.claims == json.loads(msgspec.json.encode(CLAIMS))
    header = {"alg": "EdDSA", "typ": "JWT", "kid": key_id(PUBLIC)}
    made = jwt.encode(header, told.claims, theirs(), algorithms=["EdDSA"])
    assert read(made) == CLAIMS


def test_a_token_is_good_until_its_end_and_not_then() -> None:
    token = make_token(CLAIMS, KEY)
    assert read(token) == CLAIMS
    assert read(token, 2_000_249) == CLAIMS
    with pytest.raises(Unauthorized, match="has ended"):
        read(token, 2_000_250)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_can_be_changed(at: int, change: int) -> None:
    token = bytearray(make_token(CLAIMS, KEY).encode())
    token[at % len(token)] ^= change
    with pytest.raises(Unauthorized):
        read(token.decode("latin-1"))


@given(st.text(max_size=200))
def test_nothing_but_a_token_is_a_token(text: str) -> None:
    for hostile in (text, f"{text}.{text}.{text}", f"{text}.."):
        with pytest.raises(Unauthorized):
            read(hostile)


@pytest.mark.parametrize("field", ["x", "alg", "kid", "typ"])
def test_a_deep_header_is_refused_like_any_other(field: str) -> None:
    _, _, rest = make_token(CLAIMS, KEY).partition(".")
    deep = f'{{"{field}":{"[" * 4000}{"]" * 4000}}}'.encode()
    with pytest.raises(Unauthorized):
        read(f"{urlsafe_b64encode(deep).rstrip(b'=').decode()}.{rest}")


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_a_signed_body_that_is_no_claims_is_refused(body: object) -> None:
    """Whoever has a key of ours still cannot end a server."""
    with pytest.raises(Unauthorized):
        read(_signed(msgspec.json.encode(body)))


def _signed(body: bytes) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def part(data: bytes) -> str:
        return urlsafe_b64encode(data).rstrip(b"=").decode()

    header = msgspec.json.encode({"alg": "EdDSA", "kid": key_id(PUBLIC)})
    said = f"{part(header)}.{part(body)}"
    return f"{said}.{part(Ed25519PrivateKey.from_private_bytes(KEY).sign(said.encode()))}"
