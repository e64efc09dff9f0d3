"""Tokens of an issuer outside (OpenID Connect): whom they name, if they are good here; pure.

A token is taken whose signature is by a key that the issuer publishes now, with an algorithm that
the settings list, and which names that issuer, our audience and a user of ours in one claim. There
is no algorithm with a shared secret and no `none`: they are refused where they are configured, and
keys of that kind are never read. A header that has to be understood (`crit`) is refused; keys that
a token brings along (`jwk`, `jku`, `x5u`) are not looked at. Clocks may differ by `SKEW_S`.

Needs `joserfc` (the extra `security`), which is loaded with the first key.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ternmq.core.errors import BadConfig, BadName, Unauthorized
from ternmq.core.ids import check_name
from ternmq.core.settings import about, check
from ternmq.security.access.token import HOW, TOKEN_SIZE_MAX, TokenClaims

SKEW_S = 60.0
KEYS_MAX = 100
ALGORITHMS = frozenset(
    f"{family}{size}" for family in ("RS", "PS", "ES") for size in (256, 384, 512)
) | {"EdDSA", "Ed25519"}
"""With two keys, one of them private."""
Keys = Mapping[str, Any]
"""What the issuer publishes, by key id; of joserfc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Whose tokens are good here besides our own; the same on all servers of a cluster."""

    oidc_issuer: Annotated[
        str, about("whose tokens are taken: their `iss`, to the letter; empty: of nobody")
    ] = ""
    oidc_audience: Annotated[str, about("what their `aud` has to have in it")] = ""
    oidc_jwks_url: Annotated[
        str, about("where the issuer publishes its keys: https, or http on this machine")
    ] = ""
    oidc_algorithms: Annotated[str, about("by which they may be signed, with commas")] = (
        "RS256,ES256"
    )
    oidc_user_claim: Annotated[str, about("the claim that is the name of the user")] = "sub"

    def __post_init__(self) -> None:
        check(self)
        if not self.oidc_issuer:
            if self.oidc_audience or self.oidc_jwks_url:
                raise BadConfig("oidc_audience and oidc_jwks_url are nothing without oidc_issuer")
            return
        if not self.oidc_audience or not self.oidc_jwks_url:
            raise BadConfig("oidc_issuer needs oidc_audience and oidc_jwks_url as well")
        if not self.oidc_jwks_url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            raise BadConfig("oidc_jwks_url is https://…: who can change it can be everybody")
        wrong = sorted(self.algorithms - ALGORITHMS)
        if wrong or not self.algorithms:
            raise BadConfig(
                f"oidc_algorithms has {', '.join(wrong) or 'none'}; tokens of others are signed by "
                f"{', '.join(sorted(ALGORITHMS))}"
            )

    @property
    def algorithms(self) -> frozenset[str]:
        return frozenset(filter(None, map(str.strip, self.oidc_algorithms.split(","))))


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str = ""
    crit: Any = None
    b64: Any = None


class _Issued(msgspec.Struct, frozen=True):
    iss: str = ""


def is_of(config: OidcConfig, text: str) -> bool:
    """Does a token say that this issuer has made it? Nothing is proven by that."""
    parts = text.split(".")
    if not config.oidc_issuer or len(parts) != 3 or len(text) > TOKEN_SIZE_MAX:
        return False
    try:
        return msgspec.json.decode(_decoded(parts[1]), type=_Issued).iss == config.oidc_issuer
    except (ValueError, msgspec.MsgspecError):
        return False


def key_id(text: str) -> str:
    """By which key a token says that it was signed."""
    return _header(text).kid


def read_keys(document: bytes) -> dict[str, Any]:
    """Keys of a JWKS that can check a signature; raises `ValueError` for what is none."""
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import import_key
    except ImportError as error:
        raise BadConfig(f"tokens of an issuer need the package joserfc: {HOW}") from error
    try:
        listed = msgspec.json.decode(document, type=dict[str, list[dict[str, Any]]])["keys"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValueError("this is no JSON with a list of keys") from error
    keys: dict[str, Any] = {}
    for each in listed[:KEYS_MAX]:
        if each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue
        try:
            keys[str(each.get("kid", ""))] = import_key(
                {name: value for name, value in each.items() if name not in ("d", "key_ops")}
            )
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not keys:
        raise ValueError("there is no key in it that checks signatures")
    return keys


def read_claims(config: OidcConfig, text: str, keys: Keys, *, now_ms: int) -> TokenClaims:
    """Whom a token names; raises `Unauthorized`."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    header = _header(text)
    key = keys.get(header.kid)
    if header.alg not in config.algorithms or header.crit is not None or header.b64 is not None:
        raise Unauthorized(f"a token signed by {header.alg[:20]!r} is not taken here")
    if key is None or key.get("alg", header.alg) != header.alg:
        raise Unauthorized("the issuer has no such key for this token")
    try:
        claims = jwt.decode(text, key, algorithms=[header.alg]).claims
    except (JoseError, ValueError, TypeError):
        raise Unauthorized("this token was not made by its issuer, or was changed") from None
    return _checked(config, claims, now_ms / 1000)


def _checked(config: OidcConfig, claims: Mapping[str, Any], now_s: float) -> TokenClaims:
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if claims.get("iss") != config.oidc_issuer or config.oidc_audience not in audiences:
        raise Unauthorized(f"this token is not for {config.oidc_audience!r}")
    ends, begins, made = (_time(claims, name) for name in ("exp", "nbf", "iat"))
    if ends is None or now_s >= ends + SKEW_S:
        raise Unauthorized("this token has ended; ask its issuer for another one")
    if max(begins or 0.0, made or 0.0) > now_s + SKEW_S:
        raise Unauthorized("this token is from the future: are the clocks of all servers right?")
    user = claims.get(config.oidc_user_claim)
    try:
        check_name("user", user if isinstance(user, str) else "")
    except BadName:
        raise Unauthorized(f"{config.oidc_user_claim!r} of this token names no user") from None
    return TokenClaims(
        iss=config.oidc_issuer,
        sub=str(user),
        aud=config.oidc_audience,
        jti=str(claims.get("jti", ""))[:64],
        iat=made or 0.0,
        exp=ends + SKEW_S,
    )


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Unauthorized(f"{name!r} of this token is no time")
    return None if value is None else float(value)


def _header(text: str) -> _Header:
    try:
        return msgspec.json.decode(_decoded(text.split(".")[0]), type=_Header)
    except (ValueError, msgspec.MsgspecError):
        raise Unauthorized("this is no token: it has no header") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("not base64") from error
