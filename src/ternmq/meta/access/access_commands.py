"""Users and grants: what operators ask a meta server, and the first of them.

An identity is kept as the settings of a hidden topic (`discovery/access_changes.py`), so a change
is one transaction of the registry, whichever it is, and is heard by every server like a changed
topic. Asked through a guard only (`MetaRouter`). Never sees a password.
"""

import secrets
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ternmq.core.errors import AlreadyExists, BadConfig, BadRequest, IdentityNotFound, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.discovery.access_changes import entry_settings
from ternmq.discovery.hidden_topics import access_topic
from ternmq.meta.directory import MetaDirectory
from ternmq.meta.registries.registry import NewTopic, Registry
from ternmq.security.access.access_book import (
    APPS_MAX,
    TOKEN_KEYS,
    AccessBook,
    AccessEntry,
    read_entry,
)
from ternmq.security.access.quota import DEFAULT
from ternmq.security.access.quota import changed as quota_changed
from ternmq.security.access.rights import ANY, check_grant, check_pattern
from ternmq.security.access.scram import ITERATIONS, SALT_SIZE, check_verifier, make_verifier
from ternmq.security.private_files import replace_whole
from ternmq.wire.messages.limits import (
    Grant,
    GrantSet,
    Quota,
    User,
    UserFind,
    UserNamed,
    Users,
    UserSet,
    Verifier,
)
from ternmq.wire.messages.topics import TopicSettings
from ternmq.wire.record import Record

CONNECTIONS_MAX = 1_000_000
ADMIN = "admin"
ADMIN_FILE = "admin-password"
ADMIN_ENTRY = AccessEntry(user=True, apps=[ANY], grants=[Grant(action=ANY, resource=ANY)])

log = get_logger()


class AccessCommands:
    """The questions of who may grant."""

    def __init__(
        self, directory: MetaDirectory, book: AccessBook, *, now_ms: Callable[[], int]
    ) -> None:
        self._directory = directory
        self.book = book
        self._now_ms = now_ms

    async def set_user(self, wanted: UserSet) -> Record:
        if wanted.name == DEFAULT:
            return await self._set_default(wanted)
        check_name("user", wanted.name)
        if wanted.verifier is not None:
            check_verifier(wanted.verifier)
        if len(wanted.apps or ()) > APPS_MAX:
            raise BadRequest(f"a user is at most {APPS_MAX} applications; use patterns")
        for app in wanted.apps or ():
            check_pattern("application", app)
        if not 0 <= (wanted.connections_max or 0) <= CONNECTIONS_MAX:
            raise BadRequest(f"connections are 0 (no limit) to {CONNECTIONS_MAX}")
        quota = wanted.quota or Quota()
        connections = wanted.connections_max if quota.connections_max is None else 0

        def change(entry: AccessEntry) -> AccessEntry:
            if wanted.create and entry.user:
                raise AlreadyExists(
                    f"there is a user {wanted.name!r}; 'tern user password' changes its password"
                )
            if not wanted.create and not entry.user:
                raise not_found(wanted.name)
            return replace(
                entry,
                user=True,
                tokens_since_ms=self._now_ms() if wanted.create else entry.tokens_since_ms,
                verifier=wanted.verifier or entry.verifier,
                apps=entry.apps if wanted.apps is None else wanted.apps,
                connections_max=entry.connections_max if connections is None else connections,
                quota=quota_changed(entry.quota, quota),
            )

        return (await self.change(wanted.name, change, make=wanted.create)).shown(wanted.name)

    async def _set_default(self, wanted: UserSet) -> Record:
        """The quota of everybody who has no other; nothing else can be said of everybody."""
        if wanted != UserSet(name=DEFAULT, quota=wanted.quota) or wanted.quota is None:
            raise BadRequest(f"{DEFAULT!r} is no user; only a quota can be set for everybody")
        quota = wanted.quota

        def change(entry: AccessEntry) -> AccessEntry:
            return replace(entry, quota=quota_changed(entry.quota, quota))

        return (await self.change(DEFAULT, change, make=True)).shown(DEFAULT)

    async def grant(self, wanted: GrantSet) -> Record:
        check_pattern("user", wanted.identity)
        grant = check_grant(wanted.grant)

        def change(entry: AccessEntry) -> AccessEntry:
            if not entry.user and ANY not in wanted.identity:
                raise not_found(wanted.identity)
            return entry.changed(grant, remove=wanted.remove)

        done = await self.change(wanted.identity, change, make=ANY in wanted.identity)
        return done.shown(wanted.identity)

    async def remove(self, wanted: UserNamed) -> Record:
        """With its grants: a user of the same name begins with none."""
        if wanted.name == TOKEN_KEYS:
            raise not_found(wanted.name)
        try:
            await self._directory.news.in_time(
                self._directory.delete_topic(access_topic(wanted.name))
            )
        except TopicNotFound:
            raise not_found(wanted.name) from None
        return User(name=wanted.name, user=False, apps=[], grants=[])

    async def find(self, wanted: UserFind) -> Record:
        return Users(users=self.book.users(wanted.name))

    async def change(
        self, name: str, change: Callable[[AccessEntry], AccessEntry], *, make: bool = False
    ) -> AccessEntry:
        """What is kept of that name, changed in the registry."""
        directory, topic = self._directory, access_topic(name)

        def changed(settings: TopicSettings) -> TopicSettings:
            return entry_settings(change(read_entry(settings.apps)))

        if directory.topic(topic) is None:
            if not make:
                raise not_found(name)
            change(AccessEntry())  # Refused before anything is made.
            await directory.news.in_time(
                directory.create_topic(topic, entry_settings(AccessEntry()))
            )
        done = await directory.news.in_time(directory.change_topic(topic, changed))
        return read_entry(done.settings.apps)


def not_found(name: str) -> IdentityNotFound:
    return IdentityNotFound(
        f"there is no user {name!r}; 'tern user list' shows them, 'tern user add' makes one"
    )


def make_admin(
    registry: Registry, path: Path, *, now_ms: int, again: bool = False, iterations: int = 0
) -> bool:
    """The first admin, with a password of its own in a file for this account only; blocks.

    Whoever comes second (several meta servers begin with one registry) finds it made, and nothing
    is written. `again`: the password is lost, make another one.
    """
    password = secrets.token_urlsafe(24)
    salt = secrets.token_bytes(SALT_SIZE)
    verifier = make_verifier(password, salt, iterations=iterations or ITERATIONS)
    settings = entry_settings(replace(ADMIN_ENTRY, verifier=verifier))
    name = access_topic(ADMIN)
    if not again and any(topic.name == name for topic in registry.topics()):
        return False
    new = NewTopic(name=name, settings=settings, created_at_ms=now_ms)
    [made] = registry.create_topics([new])
    if made.settings != settings and not again:
        return False
    if made.settings != settings:
        registry.update_topic(name, lambda held: _with_password(held, verifier))
    _write_private(path, password)
    return True


def make_alike(registry: Registry, *, now_ms: int) -> None:
    """Once per registry: of what every server makes the salts of users that are not there; blocks.
    Servers that are known by certificates share nothing else that others do not know."""
    name, alike = access_topic(TOKEN_KEYS), secrets.token_hex(32)
    settings = entry_settings(AccessEntry(alike=alike))
    [made] = registry.create_topics([NewTopic(name=name, settings=settings, created_at_ms=now_ms)])
    if not read_entry(made.settings.apps).alike:
        registry.update_topic(name, lambda held: _with_alike(held, alike))


def _with_alike(held: TopicSettings, alike: str) -> TopicSettings:
    entry = read_entry(held.apps)
    return held if entry.alike else entry_settings(replace(entry, alike=alike))


def _with_password(held: TopicSettings, verifier: Verifier) -> TopicSettings:
    entry = read_entry(held.apps)
    grants = [*ADMIN_ENTRY.grants, *(g for g in entry.grants if g not in ADMIN_ENTRY.grants)]
    return entry_settings(
        replace(entry, user=True, verifier=verifier, apps=ADMIN_ENTRY.apps, grants=grants)
    )


def _write_private(path: Path, password: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, password.encode() + b"\n")
    except OSError as error:
        raise BadConfig(f"cannot write the admin's password to {path}: {error.strerror}") from error
