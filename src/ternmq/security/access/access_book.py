"""All identities and grants that a server knows, by name; pure memory, with a version.

An *entry* is what the registry keeps of one identity, or of a pattern of identities: one line of
JSON (`AccessEntry`). Fields of a later release are passed over. The book is filled by whoever hears
of entries (`discovery/access_changes.py`); each change makes a new version and tells those who
follow.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from ternmq.core.errors import BadRequest, Corrupt, Unauthorized
from ternmq.security.access.quota import DEFAULT, effective
from ternmq.security.access.rights import ANY, Rights, covers
from ternmq.security.access.token import TokenClaims, read_token
from ternmq.wire.messages.hello import BY_SCRAM
from ternmq.wire.messages.limits import AccessToken, Grant, Quota, User, Verifier

TOKEN_KEYS = "*tokens"
"""Not a name or pattern: the entry of what all servers share, such as keys that tokens are signed
by."""
TOKENS_MAX = 100
"""Of one user that have not ended."""
GRANTS_MAX = 1_000
"""Lines of one identity: every server has all of them in memory."""
APPS_MAX = 100


class AccessEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an identity."""

    user: bool = False
    """Somebody can log in by this name."""
    verifier: Verifier | None = None
    apps: list[str] = []
    """Which applications it may be; empty: its own name."""
    grants: list[Grant] = []
    connections_max: int = 0
    """To each server; 0: as many as the server takes."""
    quota: Quota = Quota()
    """What is said of it, and not by the default."""
    tokens: list[AccessToken] = []
    """Those that were made and have not ended; revoked ones too."""
    tokens_since_ms: int = 0
    """Earlier ones are good for nothing: they were for a user that is gone, or all revoked."""
    cluster: str = ""
    """Only of `TOKEN_KEYS`: for whom they sign."""
    token_keys: dict[str, str] = {}
    """Public keys by their ids; the private ones are with the meta servers that made them."""
    alike: str = ""
    """Only of `TOKEN_KEYS`: of what all servers make the same salt for a user that is not there."""

    @property
    def own_quota(self) -> Quota:
        """With what `connections_max` says, which was there before quotas were."""
        return replace(
            self.quota, connections_max=self.connections_max or self.quota.connections_max
        )

    def line(self) -> str:
        """The entry as it is stored."""
        return msgspec.json.encode(self).decode()

    def changed(self, change: Grant, *, remove: bool) -> "AccessEntry":
        """With the line, or without it; raises `BadRequest` where there are too many."""
        others = [grant for grant in self.grants if grant != change]
        if remove:
            if len(others) == len(self.grants):
                raise BadRequest(
                    f"there is no line {shown(change)}; 'tern grant list' shows what there is"
                )
            return replace(self, grants=others)
        if len(others) >= GRANTS_MAX:
            raise BadRequest(f"an identity has at most {GRANTS_MAX} grants; use patterns")
        return replace(self, grants=[*others, change])

    def shown(self, name: str) -> User:
        """For people: without what a password could be guessed by."""
        return User(
            name=name,
            user=self.user,
            apps=apps_of(name, self),
            grants=list(self.grants),
            methods=[BY_SCRAM] if self.verifier is not None else [],
            connections_max=self.connections_max,
            quota=self.own_quota,
        )


def read_entry(lines: Iterable[str]) -> AccessEntry:
    """Of one topic of ours; raises `Corrupt`."""
    try:
        return msgspec.json.decode(next(iter(lines), "{}"), type=AccessEntry)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"an identity in the registry cannot be read: {error}") from error


def apps_of(name: str, entry: AccessEntry) -> list[str]:
    return entry.apps or ([name] if entry.user else [])


def shown(grant: Grant) -> str:
    return f"{'deny' if grant.deny else 'allow'} {grant.action} {grant.resource}"


def refusal(token: TokenClaims, entry: AccessEntry) -> str | None:
    """Why a token with the right signature is not taken; None: it is."""
    if round(token.iat * 1000) < entry.tokens_since_ms:
        return "all of that time were revoked"
    if any(each.id == token.jti and each.revoked for each in entry.tokens):
        return "it was revoked"
    return None


class AccessBook:
    """What one server knows."""

    def __init__(self) -> None:
        self.version = 0
        self._entries: dict[str, AccessEntry] = {}
        self._followers: list[Callable[[], None]] = []

    def follow(self, callback: Callable[[], None]) -> None:
        """Called after every change."""
        self._followers.append(callback)

    def put(self, name: str, entry: AccessEntry | None) -> None:
        """What is kept of that name now; None: nothing."""
        if self._entries.get(name) == entry:
            return
        if entry is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = entry
        self.version += 1
        for callback in self._followers:
            callback()

    def user(self, name: str) -> AccessEntry | None:
        """A user who can log in."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.user else None

    def quota(self, name: str) -> Quota:
        """What counts for a user."""
        nothing = AccessEntry()
        own, default = (self._entries.get(each, nothing).own_quota for each in (name, DEFAULT))
        return effective(own, default)

    def rights(self, name: str, token: TokenClaims | None = None) -> Rights | None:
        """What a user may do, by its own lines and by those of patterns; None: there is none, or
        the token by which it came is revoked."""
        entry = self.user(name)
        if entry is None:
            return None
        if token is not None and self._refusal(token) is not None:
            return None
        grants = [
            grant
            for pattern, other in self._entries.items()
            if pattern == name or (pattern.endswith(ANY) and covers(pattern, name))
            for grant in other.grants
        ]
        return Rights(name, apps_of(name, entry), tuple(grants), token)

    def token_claims(self, text: str, now_ms: int) -> TokenClaims:
        """Whom a token names, as this server knows tokens; raises `Unauthorized`."""
        keys = self.token_keys
        claims = read_token(text, keys.token_keys, cluster=keys.cluster, now_ms=now_ms)
        self.check_claims(claims)
        return claims

    def check_claims(self, claims: TokenClaims) -> None:
        """Of a token whose signature is right; raises `Unauthorized`."""
        wrong = self._refusal(claims)
        if wrong is not None:
            raise Unauthorized(f"this token is of no use any more: {wrong}")

    def _refusal(self, token: TokenClaims) -> str | None:
        entry = self.user(token.sub)
        if entry is None:
            return "there is no such user"
        return refusal(token, self.token_keys) or refusal(token, entry)

    @property
    def token_keys(self) -> AccessEntry:
        """By which tokens are checked."""
        return self._entries.get(TOKEN_KEYS, AccessEntry())

    def tokens(self, user: str = "") -> list[AccessToken]:
        """Of one user or of all, as they were made."""
        return [
            token
            for name, entry in sorted(self._entries.items())
            if user in ("", name)
            for token in entry.tokens
        ]

    def users(self, name: str = "") -> list[User]:
        """For people, by name."""
        return [
            entry.shown(each)
            for each, entry in sorted(self._entries.items())
            if name in ("", each) and each != TOKEN_KEYS
        ]
