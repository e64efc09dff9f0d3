"""Tokens: made, listed and revoked for who may grant, or for one's own user.

Each meta server signs with a key of its own, which is made with its first token and lies in its
data directory for that account only; the public one is put into the registry first, so that every
server of the cluster can check what it signed. The registry keeps which tokens there are until they
end, never a token itself. Asked through a guard only (`MetaRouter`).
"""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ternmq.core.errors import BadConfig, BadRequest, OverLimit
from ternmq.core.ids import check_name
from ternmq.core.units import DAY_MS
from ternmq.meta.access.access_commands import AccessCommands
from ternmq.security.access.access_book import TOKEN_KEYS, TOKENS_MAX, AccessEntry
from ternmq.security.access.rights import ANY, Rights, check_grant
from ternmq.security.access.secret import read_secret
from ternmq.security.access.token import ISSUER, TokenClaims, key_id, make_token, public_key
from ternmq.security.private_files import make_once
from ternmq.wire.messages.limits import (
    AccessToken,
    AccessTokens,
    Grant,
    OwnRights,
    TokenCreate,
    TokenCreated,
    TokenFind,
    TokenRevoke,
)
from ternmq.wire.record import Record

KEY_FILE = "token-key"
KEY_SIZE = 32
KEYS_MAX = 100
EXPIRES_MS_MIN, EXPIRES_MS_MAX = 1_000, 366 * DAY_MS
NARROW_MAX = 20


class TokenCommands:
    """The questions about tokens."""

    def __init__(
        self, access: AccessCommands, *, cluster: str, data_dir: Path, now_ms: Callable[[], int]
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._key_file = data_dir / KEY_FILE
        self._now_ms = now_ms

    async def create(self, wanted: TokenCreate) -> Record:
        check_name("user", wanted.user)
        narrow = _narrowing(wanted)
        key = await asyncio.to_thread(own_key, self._key_file)
        await self._publish(public_key(key))
        now_ms = self._now_ms()
        made = AccessToken(
            id=secrets.token_hex(8),
            user=wanted.user,
            issued_at_ms=now_ms,
            expires_at_ms=now_ms + wanted.expires_in_ms,
            narrow=narrow,
        )

        def remember(entry: AccessEntry) -> AccessEntry:
            alive = [each for each in entry.tokens if each.expires_at_ms > now_ms]
            if len(alive) >= TOKENS_MAX:
                raise OverLimit(
                    f"{wanted.user!r} has {TOKENS_MAX} tokens that have not ended; give one to "
                    "several processes, or make them shorter"
                )
            return replace(entry, tokens=[*alive, made])

        await self._access.change(wanted.user, remember)
        claims = TokenClaims(
            iss=ISSUER,
            sub=made.user,
            aud=self._cluster,
            jti=made.id,
            iat=made.issued_at_ms / 1000,
            exp=made.expires_at_ms / 1000,
            narrow=narrow,
        )
        return TokenCreated(token=make_token(claims, key), about=made)

    async def find(self, wanted: TokenFind) -> Record:
        now_ms = self._now_ms()
        return AccessTokens(
            tokens=[
                token
                for token in self._access.book.tokens(wanted.user)
                if token.expires_at_ms > now_ms
            ]
        )

    async def revoke(self, wanted: TokenRevoke) -> Record:
        """One, or all that there are; their connections end within a second. Of `*`: of everybody,
        and every key with them; a meta server brings its own again with the next token."""
        now_ms = self._now_ms()
        if wanted.user == ANY and not wanted.id:

            def forget_all(entry: AccessEntry) -> AccessEntry:
                return AccessEntry(tokens_since_ms=now_ms + 1, alike=entry.alike)

            await self._access.change(TOKEN_KEYS, forget_all, make=True)
            return AccessTokens(tokens=[])

        def forget(entry: AccessEntry) -> AccessEntry:
            alive = [each for each in entry.tokens if each.expires_at_ms > now_ms]
            if not wanted.id:
                return replace(entry, tokens=[], tokens_since_ms=now_ms + 1)
            if not any(each.id == wanted.id for each in alive):
                raise BadRequest(
                    f"{wanted.user!r} has no token {wanted.id[:40]!r} that has not ended; 'tern "
                    "token list' shows them"
                )
            return replace(
                entry,
                tokens=[
                    replace(each, revoked=each.revoked or each.id == wanted.id) for each in alive
                ],
            )

        return AccessTokens(tokens=(await self._access.change(wanted.user, forget)).tokens)

    async def end(self, rights: Rights | None) -> Record:
        """The token of a connection, given up by its holder."""
        token = None if rights is None else rights.token
        if token is None or token.iss != ISSUER:
            raise BadRequest("this connection did not come by a token of this cluster")
        await self.revoke(TokenRevoke(user=token.sub, id=token.jti))
        return AccessTokens(tokens=[])

    async def _publish(self, public: str) -> None:
        """Every server has to know the key before anybody shows what it signed."""
        kid = key_id(public)
        known = self._access.book.token_keys
        if known.token_keys.get(kid) == public and known.cluster == self._cluster:
            return

        def add(entry: AccessEntry) -> AccessEntry:
            keys = {**entry.token_keys, kid: public}
            if len(keys) > KEYS_MAX:
                raise OverLimit(f"more than {KEYS_MAX} meta servers have made tokens")
            return replace(entry, token_keys=keys, cluster=self._cluster)

        await self._access.change(TOKEN_KEYS, add, make=True)


def own_rights(rights: Rights | None) -> OwnRights:
    """What a connection is told about itself; None: nobody has to log in, or it is a server."""
    if rights is None:
        return OwnRights()
    token = rights.token
    return OwnRights(
        user=rights.name,
        apps=list(rights.apps),
        grants=list(rights.grants),
        token_id=token.jti if token is not None and token.iss == ISSUER else "",
        narrow=None if token is None else token.narrow,
        ends_at_ms=0 if token is None else int(token.exp * 1000),
    )


def _narrowing(wanted: TokenCreate) -> list[Grant] | None:
    if not EXPIRES_MS_MIN <= wanted.expires_in_ms <= EXPIRES_MS_MAX:
        raise BadRequest("a token is good for 1 second to 366 days")
    if wanted.narrow is None:
        return None
    if not 1 <= len(wanted.narrow) <= NARROW_MAX or any(line.deny for line in wanted.narrow):
        raise BadRequest(f"a token is narrowed by 1 to {NARROW_MAX} lines that allow something")
    return [check_grant(line) for line in wanted.narrow]


def own_key(path: Path) -> bytes:
    """Of this meta server; made where there is none yet. Blocks."""
    if not path.exists():
        _make_key(path)
    try:
        key = bytes.fromhex(read_secret(path, "the key that signs tokens").reveal())
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise BadConfig(
            f"{path} is no key of {KEY_SIZE} bytes; remove it, and the next token makes another one"
        )
    return key


def _make_key(path: Path) -> None:
    try:
        make_once(path, secrets.token_hex(KEY_SIZE).encode() + b"\n")
    except OSError as error:
        raise BadConfig(f"cannot make {path}: {error.strerror}") from error
