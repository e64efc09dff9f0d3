"""Connections to the databases that can hold a registry: what is particular to each of them.

SQLite is a file of this machine. PostgreSQL and MariaDB (or MySQL) are servers that several meta
servers share; a connection that died is noticed before it is used (`pool_pre_ping`), and nothing
waits longer than `CONNECT_S` for a server that is away. Isolation is READ COMMITTED everywhere:
what must not be overtaken takes a row lock.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from ternmq.core.errors import BadConfig
from ternmq.storage.files.disk import RealDisk
from ternmq.storage.files.reserve import ReserveFile

CONNECT_S = 5
LOCK_S = 10
"""A transaction waits so long for another one's lock; ours take milliseconds."""

_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_EXTRAS = {"postgresql": "postgres", "mysql": "mysql"}
_RETRY = {"40001", "40P01", "1213", "1205", "1020"}
"""Serialisation failures and deadlocks of PostgreSQL, MariaDB and MySQL: simply once more."""


def sqlite_engine(path: Path) -> sa.Engine:
    """One file, made if it is not there; its directory must be."""
    if not path.parent.is_dir():
        raise BadConfig(f"the registry's directory {path.parent} does not exist")
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        poolclass=sa.pool.StaticPool,  # One file, one thread at a time: one connection.
        connect_args={"check_same_thread": False, "timeout": LOCK_S},
    )

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA secure_delete = ON")  # An erased key is overwritten with zeros.
        cursor.execute("PRAGMA synchronous = FULL")  # WAL's default loses commits at a power cut.
        cursor.close()

    return engine


class SqliteRoom:
    """Room for the registry on a full disk, without which no server of the node begins: each takes
    an epoch at its start. First the log of SQLite is begun anew in the blocks that it has, then
    the reserve goes; as much of it as fits comes back."""

    def __init__(self, path: Path) -> None:
        self._reserve = ReserveFile(RealDisk(), path.with_name(f"{path.name}-reserve"))
        self._given = False

    def make(self, engine: sa.Engine) -> bool:
        """After "disk is full": whether it may be tried once more."""
        if self._given:
            return False
        self._given = self._reserve.give()
        with suppress(exc.DBAPIError), engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(RESTART)")
        return self._given

    def keep(self) -> None:
        """After a success."""
        self._given = False
        if not self._reserve.whole:
            self._reserve.keep()


def wants_room(error: exc.DBAPIError) -> bool:
    """For want of room. Where the first blocks of its files are missing SQLite speaks of I/O."""
    return any(text in str(error.orig) for text in ("disk is full", "disk I/O error"))


def server_engine(url: sa.URL) -> sa.Engine:
    """A database server named by `postgresql://` or `mysql://`; raises `BadConfig`."""
    backend = url.get_backend_name()
    if not url.database:
        raise BadConfig(f"the registry {shown(url)} names no database: …//host/DATABASE")
    arguments: dict[str, Any] = {"connect_timeout": CONNECT_S}
    if backend == "mysql":
        arguments |= {"read_timeout": LOCK_S + CONNECT_S, "write_timeout": LOCK_S + CONNECT_S}
    else:
        arguments |= {"options": f"-c lock_timeout={LOCK_S}s -c statement_timeout=30s"}
    try:
        return sa.create_engine(
            url.set(drivername=_DRIVERS[backend]),
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=1,  # One worker thread.
            connect_args=arguments,
        )
    except (ModuleNotFoundError, exc.NoSuchModuleError) as error:
        raise BadConfig(
            f"the registry {shown(url)} needs a driver: pip install 'ternmq[{_EXTRAS[backend]}]'"
        ) from error


def shown(url: sa.URL) -> str:
    """For people and logs: without the password."""
    return url.render_as_string(hide_password=True)


def worth_repeating(error: exc.DBAPIError) -> bool:
    """Another transaction was in the way; nothing of ours happened."""
    if isinstance(error, exc.IntegrityError):
        return True
    code = getattr(error.orig, "sqlstate", None) or next(iter(getattr(error.orig, "args", ())), "")
    return str(code) in _RETRY


def hold_ids(connection: sa.Connection, table: sa.Table) -> None:
    """No other transaction draws ids of this table until this one ends. Only PostgreSQL needs it:
    its counter is a thing of its own and not part of a transaction."""
    if connection.dialect.name == "postgresql":
        name = connection.dialect.identifier_preparer.format_table(table)
        connection.execute(sa.text(f"LOCK TABLE {name} IN EXCLUSIVE MODE"))


def draw_ids_after(connection: sa.Connection, table: sa.Table, used: int) -> None:
    """SQLite and MariaDB move their counters along with an id given in an insert."""
    if connection.dialect.name == "postgresql":
        move = sa.text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :used)")
        connection.execute(move, {"name": table.name, "used": used})
