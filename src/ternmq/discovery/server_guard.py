"""Makes the guard of a server with security on: its book, filled by the directory, and its log."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.access_changes import DirectoryFacts, follow_access
from ternmq.discovery.directory import ClusterDirectory
from ternmq.discovery.hidden_topics import ACCESS_PREFIX, access_identity
from ternmq.rpc.config import ListenerConfig
from ternmq.rpc.guarded.guard import Guard
from ternmq.rpc.node_proof import NodeSecret
from ternmq.security.access.access_book import TOKEN_KEYS, AccessBook
from ternmq.security.access.audit import AuditLog, audit_file
from ternmq.wire.messages.topics import Topic

if TYPE_CHECKING:
    from ternmq.discovery.oidc_keys import OidcKeys

log = get_logger()

ALIKE = "tern access 1: nobody"
"""All servers with one node secret answer alike about users that do not exist, until they know what
the registry has for that (`AccessEntry.alike`)."""


@asynccontextmanager
async def guarding(
    directory: ClusterDirectory,
    *,
    listener: ListenerConfig,
    data_dir: Path,
    server: str,
    secret: NodeSecret | None,
    clock: Clock,
) -> AsyncIterator[Guard | None]:
    """A guard while the block runs, if security is on; what it wrote down is on disk afterwards.
    Off where there are users would let everybody in behind their backs: `BadConfig`."""
    if not listener.security:
        _refuse_users(directory.topics())
        directory.on_topic_changed(_tell_of_user)
        yield None
        return
    book = AccessBook()
    audit = AuditLog(data_dir / audit_file(server), server=server, now_ms=clock.now_ms)
    keys = _issuer_keys(listener, clock)
    guard = Guard(
        book,
        DirectoryFacts(directory, directory.silent_s),
        audit=audit,
        secret=secrets.token_bytes(32) if secret is None else secret.derived(ALIKE),
        monotonic=clock.monotonic,
        now_ms=clock.now_ms,
        issuer=keys,
    )
    follow_access(book, directory)
    directory.on_topic_deleted(lambda topic: guard.topic_gone())
    try:
        async with background(**({} if keys is None else {"oidc": keys.run})):
            yield guard
    finally:
        await audit.close()


def _issuer_keys(listener: ListenerConfig, clock: Clock) -> "OidcKeys | None":
    if not listener.oidc.oidc_issuer:
        return None
    from ternmq.discovery.oidc_keys import OidcKeys  # Brings an HTTP client along.

    return OidcKeys(listener.oidc, monotonic=clock.monotonic)


def _refuse_users(topics: list[Topic]) -> None:
    users = [access_identity(each.name) for each in topics if _is_access(each)]
    if users:
        raise BadConfig(
            f"this cluster has users ({', '.join(sorted(users)[:3])}), and security is off here: "
            "everybody would be let in; set security = true, or remove the users first "
            "('tern user list')"
        )


def _tell_of_user(topic: Topic) -> None:
    if _is_access(topic):
        log.error("this cluster has users, and security is off here: set security = true")


def _is_access(topic: Topic) -> bool:
    """Of a user, or of several by a pattern; what servers share is left when all are removed."""
    name = topic.name
    return name.startswith(ACCESS_PREFIX) and access_identity(name) != TOKEN_KEYS
