"""Makes the guard of a server with security on: its book, filled by the directory, and its log."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.discovery.access_news import DirectoryFacts, follow_access
from ternmq.discovery.directory import ClusterDirectory
from ternmq.rpc.guarded.guard import Guard
from ternmq.rpc.node_proof import NodeSecret
from ternmq.security.access.audit import AuditLog, audit_file
from ternmq.security.access.book import AccessBook

ALIKE = "tern access 1: nobody"
"""All servers with one node secret answer alike about users that do not exist."""


@asynccontextmanager
async def guarding(
    directory: ClusterDirectory,
    *,
    on: bool,
    data_dir: Path,
    server: str,
    secret: NodeSecret | None,
    clock: Clock,
) -> AsyncIterator[Guard | None]:
    """A guard while the block runs, if security is on; what it wrote down is on disk afterwards."""
    if not on:
        yield None
        return
    book = AccessBook()
    audit = AuditLog(data_dir / audit_file(server), server=server, now_ms=clock.now_ms)
    guard = Guard(
        book,
        DirectoryFacts(directory, directory.silent_s),
        audit=audit,
        secret=secrets.token_bytes(32) if secret is None else secret.derived(ALIKE),
        monotonic=clock.monotonic,
        now_ms=clock.now_ms,
    )
    follow_access(book, directory)
    directory.on_topic_deleted(lambda topic: guard.topic_gone())
    try:
        yield guard
    finally:
        await audit.close()
