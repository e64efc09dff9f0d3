"""Tokens of ours: which user their holder is until when, signed by a meta server; pure.

A token is a JWT (RFC 7519) that is signed with Ed25519 and nothing else: the header has to be
exactly what we write, so no other algorithm, and never `none`, is even looked at. It names the user
(`sub`), the cluster (`aud`), its own id (`jti`), when it was made and when it ends, and perhaps
lines that narrow what its user may do. The clock is handed in. Who has a token can use it, so it is
sent over TLS, or to the same machine, only.

Needs `cryptography` (the extra `security`), which is loaded with the first token.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from ternmq.core.errors import BadConfig, Unauthorized
from ternmq.wire.messages.limits import Grant

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ISSUER = "tern"
TOKEN_SIZE_MAX = 12 * 1024
AHEAD_S = 60.0
"""So much the clock of the server that made a token may be ahead of ours."""
HOW = "pip install 'ternmq[security]'"
NOT_OURS = "this token was not made by this cluster, or was changed"


class TokenHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first part. What is not known is refused: it could change how the rest is meant."""

    alg: str
    kid: str
    typ: str = "JWT"


class TokenClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token says."""

    iss: str
    sub: str
    aud: str
    jti: str
    iat: float
    """Seconds since 1970."""
    exp: float
    narrow: list[Grant] | None = None
    """Only what one of these lines allows as well; None: everything that its user may."""

    def has_ended(self, now_ms: int) -> bool:
        return now_ms >= self.exp * 1000

    def left_ms(self, now_ms: int) -> int:
        return max(1, int(self.exp * 1000) - now_ms)


def make_token(claims: TokenClaims, key: bytes) -> str:
    """Signed with a private key (32 bytes)."""
    private = _private(key)
    header = TokenHeader(alg="EdDSA", kid=key_id(public_key(key)))
    signed = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
    return f"{signed}.{_encoded(private.sign(signed.encode()))}"


def read_token(text: str, keys: Mapping[str, str], *, cluster: str, now_ms: int) -> TokenClaims:
    """What it says, if one of these keys has signed it for this cluster and it has not ended; else
    raises `Unauthorized`."""
    if len(text) > TOKEN_SIZE_MAX or text.count(".") != 2 or not text.isascii():
        raise Unauthorized("this is no token of ours; 'tern token create' makes one")
    signed, _, signature = text.rpartition(".")
    first, _, second = signed.partition(".")
    try:
        header = msgspec.json.decode(_decoded(first), type=TokenHeader)
        key = keys.get(header.kid)
        if header.alg != "EdDSA" or header.typ != "JWT" or key is None:
            raise Unauthorized(NOT_OURS)
        _verify(_decoded(key), _decoded(signature), signed.encode())
        claims = msgspec.json.decode(_decoded(second), type=TokenClaims)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Unauthorized(NOT_OURS) from None
    if claims.iss != ISSUER or not cluster or claims.aud != cluster:
        raise Unauthorized("this token is for another cluster")
    if claims.has_ended(now_ms):
        raise Unauthorized("this token has ended; 'tern token create' makes another one")
    if claims.iat - AHEAD_S > now_ms / 1000:
        raise Unauthorized("this token is from the future: are the clocks of all servers right?")
    return claims


def public_key(key: bytes) -> str:
    """Of a private one, as it is stored."""
    return _encoded(_private(key).public_key().public_bytes_raw())


def key_id(public: str) -> str:
    return hashlib.sha256(public.encode()).hexdigest()[:16]


def _private(key: bytes) -> "Ed25519PrivateKey":
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError as error:
        raise BadConfig(f"tokens need the package cryptography: {HOW}") from error
    return Ed25519PrivateKey.from_private_bytes(key)


def _verify(key: bytes, signature: bytes, signed: bytes) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise BadConfig(f"this server cannot check tokens: {HOW}") from error
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except InvalidSignature:
        raise Unauthorized(NOT_OURS) from None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Of exactly what `_encoded` makes: one token has one way to be written."""
    padded = text.encode() + b"=" * (-len(text) % 4)
    data = base64.b64decode(padded, altchars=b"-_", validate=True)
    if _encoded(data) != text:
        raise ValueError("not as we write it")
    return data
