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
    except exc.ArgumentError as error:
        raise BadConfig(f"registry = {url!r} is no url; write {KINDS}") from error
    backend = {"mariadb": "mysql", "postgres": "postgresql"}.get(
        parsed.get_backend_name(), parsed.get_backend_name()
    )
    if backend == "sqlite":
        if not parsed.database:
            raise BadConfig(f"registry = {url!r} names no file; write sqlite:///FILE")
        return SqlRegistry.open_sqlite(Path(parsed.database))
    if backend in ("postgresql", "mysql"):
        return SqlRegistry.open_server(parsed.set(drivername=backend))
    raise BadConfig(f"registry = {url!r}: there is no such kind; write {KINDS}")


def _open_zookeeper(url: str) -> Registry:
    match = _ZOOKEEPER.fullmatch(url)
    if match is None:
        raise BadConfig(f"registry = {url!r} names no server; write zookeeper://HOST:2181/PATH")
    hosts, path = match.group(1), (match.group(2) or "").rstrip("/")
    try:
        from ternmq.meta.registries.zookeeper import ZooKeeperRegistry
    except ModuleNotFoundError as error:
        raise BadConfig(
            "a registry in ZooKeeper needs kazoo: pip install 'ternmq[zookeeper]'"
        ) from error
    return ZooKeeperRegistry.open(hosts, path)
