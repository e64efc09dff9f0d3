"""All identities and grants that a server knows, by name; pure memory, with a version.

An *entry* is what the registry keeps of one identity, or of a pattern of identities: one line of
JSON (`AccessEntry`). Fields of a later release are passed over. The book is filled by whoever hears
of entries (`discovery/access_news.py`); each change makes a new version and tells those who follow.
"""

from collections.abc import Callable, Iterable

import msgspec

from ternmq.core.errors import BadRequest, Corrupt
from ternmq.security.access.rights import ANY, Rights, covers
from ternmq.wire.messages.hello import BY_SCRAM
from ternmq.wire.messages.limits import Grant, User, Verifier

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

    def line(self) -> str:
        """As it is stored."""
        return msgspec.json.encode(self).decode()

    def changed(self, change: Grant, *, remove: bool) -> "AccessEntry":
        """With the line, or without it; raises `BadRequest` where there are too many."""
        others = [grant for grant in self.grants if grant != change]
        if remove:
            if len(others) == len(self.grants):
                raise BadRequest(
                    f"there is no line {shown(change)}; 'tern grant list' shows what there is"
                )
            return msgspec.structs.replace(self, grants=others)
        if len(others) >= GRANTS_MAX:
            raise BadRequest(f"an identity has at most {GRANTS_MAX} grants; use patterns")
        return msgspec.structs.replace(self, grants=[*others, change])

    def shown(self, name: str) -> User:
        """For people: without what a password could be guessed by."""
        return User(
            name=name,
            user=self.user,
            apps=apps_of(name, self),
            grants=list(self.grants),
            methods=[BY_SCRAM] if self.verifier is not None else [],
            connections_max=self.connections_max,
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
        """Somebody who can log in."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.user else None

    def rights(self, name: str) -> Rights | None:
        """What a user may do, by its own lines and by those of patterns; None: there is none."""
        entry = self.user(name)
        if entry is None:
            return None
        grants = [
            grant
            for pattern, other in self._entries.items()
            if pattern == name or (pattern.endswith(ANY) and covers(pattern, name))
            for grant in other.grants
        ]
        return Rights(name, apps_of(name, entry), tuple(grants))

    def users(self, name: str = "") -> list[User]:
        """For people, by name."""
        return [
            entry.shown(each) for each, entry in sorted(self._entries.items()) if name in ("", each)
        ]
