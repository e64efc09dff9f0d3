"""Access keys: a name and a secret by which clients of RocketMQ sign what they ask a gateway.

Such a signature can be checked only by who has the secret itself, so the registry keeps it, as the
settings of a hidden topic (`%accesskey.ID`) that no list shows and no broker hears of. It is told
twice: to who makes the key, and to a gateway, which has the right to grant that key, and gets with
it a token to be the key's user for a while. A gateway asks again every second: a key that was
removed is good for nothing then. Secrets are made here, never chosen, so they cannot be guessed.
"""

import secrets
from collections.abc import Callable

import msgspec

from ternmq.core.errors import BadRequest, IdentityNotFound, OverLimit, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.units import HOUR_MS
from ternmq.discovery.hidden_topics import ACCESS_KEY_PREFIX, access_key_topic
from ternmq.meta.access.access_commands import AccessCommands, not_found
from ternmq.meta.access.token_commands import TokenCommands
from ternmq.meta.directory import MetaDirectory
from ternmq.wire.messages.limits import (
    AccessKey,
    AccessKeyFind,
    AccessKeyOpen,
    AccessKeys,
    AccessKeySet,
    OpenedKey,
    TokenCreate,
    TokenCreated,
)
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.record import Record

KEYS_MAX = 20
"""Of one user."""
ALL_KEYS_MAX = 20_000
ID_BYTES, SECRET_BYTES = 8, 30
TOKEN_MS = HOUR_MS
RENEW_MS = TOKEN_MS // 4
"""A token that ends sooner than this is replaced."""


class KeptSecret(msgspec.Struct, frozen=True):
    """What the registry keeps of a key, as JSON."""

    user: str
    secret: str
    made_at_ms: int


class AccessKeyCommands:
    """The questions about access keys."""

    def __init__(
        self,
        directory: MetaDirectory,
        access: AccessCommands,
        tokens: TokenCommands,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._directory = directory
        self._access = access
        self._tokens = tokens
        self._now_ms = now_ms

    async def set(self, wanted: AccessKeySet) -> Record:
        """Make one, or remove one: it is overwritten first, because rows of deleted topics stay."""
        check_name("user", wanted.user)
        if self._access.book.user(wanted.user) is None:
            raise not_found(wanted.user)
        if wanted.remove:
            await self._remove(wanted.user, wanted.remove)
            return self._listed(wanted.user)
        held = self._keys()
        own = sum(each.user == wanted.user for each in held)
        if own >= KEYS_MAX or len(held) >= ALL_KEYS_MAX:
            raise OverLimit(
                f"{wanted.user!r} has {own} access keys of at most {KEYS_MAX} (all users "
                f"{len(held)} of {ALL_KEYS_MAX}): remove some ('tern access-key remove')"
            )
        id = f"AK{secrets.token_hex(ID_BYTES)}"
        kept = KeptSecret(wanted.user, secrets.token_urlsafe(SECRET_BYTES), self._now_ms())
        settings = TopicSettings(closed=True, apps=[msgspec.json.encode(kept).decode()])
        making = self._directory.create_topic(access_key_topic(id), settings)
        await self._directory.news.in_time(making)
        return AccessKeys(keys=[_key(id, kept, secret=True)])

    async def find(self, wanted: AccessKeyFind) -> Record:
        return self._listed(wanted.user)

    async def open(self, wanted: AccessKeyOpen) -> Record:
        """For a gateway; raises `IdentityNotFound` for a key that is not there, or whose user is
        gone, also where there is another one of that name now."""
        kept = _kept(self._directory.topic(access_key_topic(wanted.id)))
        entry = None if kept is None else self._access.book.user(kept.user)
        if kept is None or entry is None or kept.made_at_ms < entry.tokens_since_ms:
            raise IdentityNotFound(f"there is no access key {wanted.id[:40]!r}")
        key, now_ms = _key(wanted.id, kept, secret=True), self._now_ms()
        for token in entry.tokens:
            good = not token.revoked and token.expires_at_ms - now_ms > RENEW_MS
            if good and token.id == wanted.token_id:
                return OpenedKey(key=key, token_id=token.id, ends_at_ms=token.expires_at_ms)
        made = await self._tokens.create(TokenCreate(user=kept.user, expires_in_ms=TOKEN_MS))
        assert isinstance(made, TokenCreated)
        about = made.about
        return OpenedKey(
            key=key, token=made.token, token_id=about.id, ends_at_ms=about.expires_at_ms
        )

    async def _remove(self, user: str, id: str) -> None:
        topic = self._directory.topic(access_key_topic(id))
        kept = _kept(topic)
        if topic is None or kept is None or kept.user != user:
            raise BadRequest(
                f"{user!r} has no access key {id[:40]!r}; 'tern access-key list' shows them"
            )
        in_time, nothing = self._directory.news.in_time, TopicSettings(closed=True)
        try:
            await in_time(self._directory.change_topic(topic.name, lambda _: nothing))
            await in_time(self._directory.delete_topic(topic.name))
        except TopicNotFound:
            pass  # Somebody else removes it, too.

    def _keys(self) -> list[AccessKey]:
        return [
            _key(topic.name.removeprefix(ACCESS_KEY_PREFIX), kept)
            for topic in self._directory.topics()
            if topic.name.startswith(ACCESS_KEY_PREFIX) and (kept := _kept(topic)) is not None
        ]

    def _listed(self, user: str) -> AccessKeys:
        found = [each for each in self._keys() if user in ("", each.user)]
        return AccessKeys(keys=sorted(found, key=lambda each: (each.user, each.made_at_ms)))


def _kept(topic: Topic | None) -> KeptSecret | None:
    """What a topic of ours keeps; None: nothing, or it was overwritten."""
    if topic is None or not topic.settings.apps:
        return None
    try:
        return msgspec.json.decode(topic.settings.apps[0], type=KeptSecret)
    except msgspec.MsgspecError:
        return None


def _key(id: str, kept: KeptSecret, *, secret: bool = False) -> AccessKey:
    return AccessKey(
        id=id,
        user=kept.user,
        made_at_ms=kept.made_at_ms,
        secret=kept.secret if secret else "",
    )
