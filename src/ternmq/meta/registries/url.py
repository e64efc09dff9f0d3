"""Which registry an operator means: `sqlite:///FILE`, `postgresql://…`, `mysql://…`,
`zookeeper://HOST:PORT,HOST:PORT/PATH`. Drivers are imported only when they are asked for."""

import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from ternmq.core.errors import BadConfig
from ternmq.meta.registries.registry import Registry
from ternmq.meta.registries.sql import SqlRegistry

KINDS = "sqlite:///FILE, postgresql://HOST/DATABASE, mysql://HOST/DATABASE or zookeeper://HOST/PATH"

_ZOOKEEPER = re.compile(r"zookeeper://([^/]+)(/.*)?")


def open_registry(url: str) -> Registry:
    """Open or make the registry; blocking. Raises `BadConfig`, `Unavailable`, `Corrupt`."""
    if url.startswith("zookeeper:"):
        return _open_zookeeper(url)
    try:
        parsed = sa.make_url(url)
    except (exc.ArgumentError, ValueError):
        raise BadConfig(f"registry = {redacted(url)!r} is no url; write {KINDS}") from None
    backend = {"mariadb": "mysql", "postgres": "postgresql"}.get(
        parsed.get_backend_name(), parsed.get_backend_name()
    )
    if backend == "sqlite":
        if not parsed.database:
            raise BadConfig(f"registry = {redacted(url)!r} names no file; write sqlite:///FILE")
        return SqlRegistry.open_sqlite(Path(parsed.database))
    if backend in ("postgresql", "mysql"):
        return SqlRegistry.open_server(parsed.set(drivername=backend))
    raise BadConfig(f"registry = {redacted(url)!r}: there is no such kind; write {KINDS}")


def _open_zookeeper(url: str) -> Registry:
    match = _ZOOKEEPER.fullmatch(url)
    if match is None:
        raise BadConfig(
            f"registry = {redacted(url)!r} names no server; write zookeeper://HOST:2181/PATH"
        )
    if "@" in match.group(1):
        raise BadConfig(
            f"registry = {redacted(url)!r}: ZooKeeper is reached without user and password; keep "
            "others out by the network"
        )
    hosts, path = match.group(1), (match.group(2) or "").rstrip("/")
    try:
        from ternmq.meta.registries.zookeeper import ZooKeeperRegistry
    except ModuleNotFoundError as error:
        raise BadConfig(
            "a registry in ZooKeeper needs kazoo: pip install 'ternmq[zookeeper]'"
        ) from error
    return ZooKeeperRegistry.open(hosts, path)


def redacted(url: str) -> str:
    """For people: whatever could be a password is left out, also of what is no url at all."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        scheme, rest = "", url
    _, at, place = rest.rpartition("@")
    shown = f"***@{place}" if at else rest
    return f"{scheme}{colon}{shown.partition('?')[0]}"
