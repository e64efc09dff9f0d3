"""The registry in a SQL database, by SQLAlchemy Core. Only `_open_sqlite` knows it is SQLite.

    registry   key, value                           the schema's version, the cluster's id
    topics     id, name, live_name, created_at_ms, deleted_at_ms, settings (json text)
    groups     id, topic_id, name, live_name, created_at_ms, deleted_at_ms
    epochs     broker_group, epoch
    servers    kind, broker_group, address, seen_at_ms

Deleted rows stay: they are how ids are never reused, and they tell what an old id meant. A row
without `live_name` and without `deleted_at_ms` is a mark: ids up to it are in use by data that this
registry knows nothing of. An id given in an insert moves SQLite's and MariaDB's counter along;
where a database does not do that (PostgreSQL), `_mark` has to set its sequence too.
`live_name` is the name while the row lives and NULL after, so that a plain unique constraint, which
every database has and in which NULLs differ, allows one live topic per name.

Never used from two threads at once: `service` has one worker thread for it.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from ternmq.core.errors import BadConfig, Corrupt, DiskFull, TopicNotFound, Unavailable
from ternmq.discovery.directory import InUse
from ternmq.meta.registry import SCHEMA_VERSION, Behind, Change, GroupRow, NewGroup, NewTopic
from ternmq.wire.commands import Route, Topic, TopicSettings

NAME_SIZE_COLUMN = 400
"""Our own names hold a topic's and a group's name."""
CHUNK = 500
"""Values per IN list; every database takes that many."""
ATTEMPTS_MAX = 5
"""Another meta server may make the same name between our look and our insert; then look again."""

MARK_NAME = "%unknown"

T = TypeVar("T")
K = TypeVar("K")

_id_type = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_tables = sa.MetaData()

_registry = sa.Table(
    "registry",
    _tables,
    sa.Column("key", sa.String(60), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)
_topics = sa.Table(
    "topics",
    _tables,
    sa.Column("id", _id_type, primary_key=True, autoincrement=True),
    sa.Column("name", sa.String(NAME_SIZE_COLUMN), nullable=False),
    sa.Column("live_name", sa.String(NAME_SIZE_COLUMN), unique=True),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("deleted_at_ms", sa.BigInteger),
    sa.Column("settings", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
_groups = sa.Table(
    "groups",
    _tables,
    sa.Column("id", _id_type, primary_key=True, autoincrement=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("name", sa.String(NAME_SIZE_COLUMN), nullable=False),
    sa.Column("live_name", sa.String(NAME_SIZE_COLUMN)),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("deleted_at_ms", sa.BigInteger),
    sa.UniqueConstraint("topic_id", "live_name"),
    sqlite_autoincrement=True,
)
_epochs = sa.Table(
    "epochs",
    _tables,
    sa.Column("broker_group", sa.String(NAME_SIZE_COLUMN), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)
_servers = sa.Table(
    "servers",
    _tables,
    sa.Column("kind", sa.String(20), primary_key=True),
    sa.Column("broker_group", sa.String(NAME_SIZE_COLUMN), primary_key=True),
    sa.Column("address", sa.String(NAME_SIZE_COLUMN), nullable=False),
    sa.Column("seen_at_ms", sa.BigInteger, nullable=False),
)


class SqlRegistry:
    """Implements `registry.Registry`."""

    def __init__(self, engine: sa.Engine, *, description: str) -> None:
        self._engine = engine
        self._description = description
        self._cluster = ""

    @classmethod
    def open_sqlite(cls, path: Path) -> "SqlRegistry":
        """Open or make the registry file; raises `BadConfig`, `Corrupt`, `DiskFull`."""
        return cls._open(_open_sqlite(path), description=f"sqlite {path}")

    @classmethod
    def _open(cls, engine: sa.Engine, *, description: str) -> "SqlRegistry":
        registry = cls(engine, description=description)
        try:
            with registry._transaction() as connection:
                _tables.create_all(connection)
                _check_version(connection, description)
                registry._cluster = _cluster_id(connection)
        except BaseException:
            engine.dispose()
            raise
        return registry

    @property
    def description(self) -> str:
        return self._description

    @property
    def cluster(self) -> str:
        return self._cluster

    def topics(self) -> list[Topic]:
        chosen = sa.select(*_TOPIC_COLUMNS).where(_topics.c.live_name.is_not(None))
        with self._transaction() as connection:
            return [_topic(row) for row in connection.execute(chosen.order_by(_topics.c.id))]

    def groups(self) -> list[GroupRow]:
        chosen = sa.select(*_GROUP_COLUMNS).where(_groups.c.live_name.is_not(None))
        with self._transaction() as connection:
            return [_group(row) for row in connection.execute(chosen.order_by(_groups.c.id))]

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        return self._repeated(lambda connection: _create_topics(connection, wanted))

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        return self._repeated(lambda connection: _create_groups(connection, wanted))

    def update_topic(self, name: str, change: Change) -> Topic:
        with self._transaction() as connection:
            found = sa.select(*_TOPIC_COLUMNS).where(_topics.c.live_name == name)
            row = connection.execute(found.with_for_update()).first()
            if row is None:
                raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
            topic = _topic(row)
            changed = msgspec.structs.replace(topic, settings=change(topic.settings))
            text = msgspec.json.encode(changed.settings).decode()
            this = _topics.c.id == topic.id
            connection.execute(_topics.update().where(this).values(settings=text))
            return changed

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        with self._transaction() as connection:
            found = sa.select(*_TOPIC_COLUMNS).where(_topics.c.live_name == name)
            row = connection.execute(found).first()
            if row is None:
                raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
            gone = {"live_name": None, "deleted_at_ms": deleted_at_ms}
            connection.execute(_topics.update().where(_topics.c.id == row.id).values(gone))
            of_topic = sa.and_(_groups.c.topic_id == row.id, _groups.c.live_name.is_not(None))
            connection.execute(_groups.update().where(of_topic).values(gone))
            return _topic(row)

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        chosen = sa.and_(_groups.c.topic_id == topic_id, _groups.c.live_name == name)
        gone = {"live_name": None, "deleted_at_ms": deleted_at_ms}
        with self._transaction() as connection:
            return connection.execute(_groups.update().where(chosen).values(gone)).rowcount > 0

    def new_epoch(self, broker_group: str) -> int:
        return self._repeated(lambda connection: _new_epoch(connection, broker_group))

    def servers(self) -> list[Route]:
        chosen = sa.select(_servers).order_by(_servers.c.kind, _servers.c.broker_group)
        with self._transaction() as connection:
            return [
                Route(broker_group=row.broker_group, address=row.address, kind=row.kind)
                for row in connection.execute(chosen)
            ]

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        values = {"address": route.address, "seen_at_ms": now_ms}
        new = {"kind": route.kind, "broker_group": route.broker_group, **values}

        def remember(connection: sa.Connection) -> None:
            changed = connection.execute(_servers.update().where(_this(route)).values(values))
            if not changed.rowcount:
                connection.execute(_servers.insert().values(new))

        self._repeated(remember)

    def forget_server(self, route: Route) -> None:
        with self._transaction() as connection:
            connection.execute(_servers.delete().where(_this(route)))

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        return self._repeated(lambda connection: _reserve(connection, used, now_ms))

    def close(self) -> None:
        self._engine.dispose()

    def _repeated(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a transaction again when another server was faster with the same name."""
        attempt = 0
        while True:
            try:
                with self._transaction() as connection:
                    return work(connection)
            except exc.IntegrityError as error:
                attempt += 1
                if attempt == ATTEMPTS_MAX:
                    raise _translated(error, self._description) from error

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """One transaction; the database's own errors become ours, once, here."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except exc.IntegrityError:
            raise
        except exc.DBAPIError as error:
            raise _translated(error, self._description) from error


def _create_topics(connection: sa.Connection, wanted: Sequence[NewTopic]) -> list[Topic]:
    by_name = {new.name: new for new in wanted}
    found: dict[str, Topic] = {}
    for names in _chunks(by_name):
        chosen = sa.select(*_TOPIC_COLUMNS).where(_topics.c.live_name.in_(names))
        found.update((row.name, _topic(row)) for row in connection.execute(chosen))
    missing = [new for name, new in by_name.items() if name not in found]
    if missing:
        values = [
            {
                "name": new.name,
                "live_name": new.name,
                "created_at_ms": new.created_at_ms,
                "settings": msgspec.json.encode(new.settings).decode(),
            }
            for new in missing
        ]
        made = _topics.insert().returning(_topics.c.id, _topics.c.name)
        for topic_id, name in connection.execute(made, values):
            new = by_name[name]
            found[name] = Topic(
                id=topic_id, name=name, created_at_ms=new.created_at_ms, settings=new.settings
            )
    return [found[new.name] for new in wanted]


def _create_groups(connection: sa.Connection, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
    by_key = {(new.topic_id, new.name): new for new in wanted}
    topic_ids = {new.topic_id for new in wanted}
    live: set[int] = set()
    found: dict[tuple[int, str], GroupRow] = {}
    for ids in _chunks(topic_ids):
        alive = sa.and_(_topics.c.id.in_(ids), _topics.c.live_name.is_not(None))
        live.update(connection.execute(sa.select(_topics.c.id).where(alive)).scalars())
    for ids in _chunks(live):
        of_topics = sa.and_(_groups.c.topic_id.in_(ids), _groups.c.live_name.is_not(None))
        for row in connection.execute(sa.select(*_GROUP_COLUMNS).where(of_topics)):
            found[row.topic_id, row.name] = _group(row)
    missing = [new for key, new in by_key.items() if key not in found and new.topic_id in live]
    if missing:
        values = [
            {
                "topic_id": new.topic_id,
                "name": new.name,
                "live_name": new.name,
                "created_at_ms": new.created_at_ms,
            }
            for new in missing
        ]
        for row in connection.execute(_groups.insert().returning(*_GROUP_COLUMNS), values):
            found[row.topic_id, row.name] = _group(row)
    return [found.get((new.topic_id, new.name)) for new in wanted]


def _new_epoch(connection: sa.Connection, broker_group: str) -> int:
    this = _epochs.c.broker_group == broker_group
    connection.execute(_epochs.update().where(this).values(epoch=_epochs.c.epoch + 1))
    epoch = connection.execute(sa.select(_epochs.c.epoch).where(this)).scalar()
    if epoch is None:
        connection.execute(_epochs.insert().values(broker_group=broker_group, epoch=1))
        return 1
    return int(epoch)


def _reserve(connection: sa.Connection, used: InUse, now_ms: int) -> Behind:
    told = sa.or_(_topics.c.live_name.is_not(None), _topics.c.deleted_at_ms.is_not(None))
    known = connection.execute(sa.select(_topics.c.id).where(told)).scalars()
    unknown = used.topic_ids.difference(known)
    _mark(connection, _topics, max(unknown, default=0), {"created_at_ms": now_ms, "settings": "{}"})
    new = {"created_at_ms": now_ms, "topic_id": 0}
    group_ids = _mark(connection, _groups, used.group_id, new)
    this = _epochs.c.broker_group == used.broker_group
    epoch = connection.execute(sa.select(_epochs.c.epoch).where(this)).scalar()
    if epoch is None and used.epoch:
        first = {"broker_group": used.broker_group, "epoch": used.epoch}
        connection.execute(_epochs.insert().values(first))
    elif epoch is not None and epoch < used.epoch:
        lower = sa.and_(this, _epochs.c.epoch < used.epoch)
        connection.execute(_epochs.update().where(lower).values(epoch=used.epoch))
    return Behind(topic_ids=unknown, group_ids=group_ids, epoch=(epoch or 0) < used.epoch)


def _mark(connection: sa.Connection, table: sa.Table, used: int, new: dict[str, Any]) -> bool:
    """Make `used` the least id that is taken; False if it or a higher one is taken already."""
    highest = connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
    if highest >= used:
        return False
    connection.execute(table.insert().values(id=used, name=MARK_NAME, live_name=None, **new))
    return True


_TOPIC_COLUMNS = (_topics.c.id, _topics.c.name, _topics.c.created_at_ms, _topics.c.settings)
_GROUP_COLUMNS = (_groups.c.id, _groups.c.topic_id, _groups.c.name)


def _topic(row: Any) -> Topic:
    try:
        settings = msgspec.json.decode(row.settings, type=TopicSettings)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"settings of topic {row.name!r} in the registry: {error}") from error
    return Topic(id=row.id, name=row.name, created_at_ms=row.created_at_ms, settings=settings)


def _group(row: Any) -> GroupRow:
    return GroupRow(id=row.id, topic_id=row.topic_id, name=row.name)


def _this(route: Route) -> sa.ColumnElement[bool]:
    return sa.and_(_servers.c.kind == route.kind, _servers.c.broker_group == route.broker_group)


def _chunks(values: Iterable[K]) -> Iterator[list[K]]:
    everything = list(values)
    for first in range(0, len(everything), CHUNK):
        yield everything[first : first + CHUNK]


def _check_version(connection: sa.Connection, description: str) -> None:
    this = _registry.c.key == "schema_version"
    found = connection.execute(sa.select(_registry.c.value).where(this)).scalar()
    if found is None:
        new = {"key": "schema_version", "value": str(SCHEMA_VERSION)}
        connection.execute(_registry.insert().values(new))
    elif found != str(SCHEMA_VERSION):
        raise BadConfig(
            f"the registry ({description}) has schema {found}, this version of ternmq knows "
            f"{SCHEMA_VERSION}; use the version that wrote it, or a newer one"
        )


def _cluster_id(connection: sa.Connection) -> str:
    """Drawn when the registry is first opened, then the same for ever."""
    this = _registry.c.key == "cluster"
    found: str | None = connection.execute(sa.select(_registry.c.value).where(this)).scalar()
    if found is None:
        found = secrets.token_hex(8)
        connection.execute(_registry.insert().values({"key": "cluster", "value": found}))
    return found


def _translated(error: exc.DBAPIError, description: str) -> Exception:
    text = str(error.orig)
    if "disk is full" in text:
        return DiskFull(f"no space left for the registry ({description})")
    if "malformed" in text or "not a database" in text:
        return Corrupt(f"the registry ({description}) is damaged: {text}; restore a copy of it")
    return Unavailable(f"the registry ({description}) does not answer: {text}")


def _open_sqlite(path: Path) -> sa.Engine:
    """Everything that is particular to SQLite."""
    if not path.parent.is_dir():
        raise BadConfig(f"the registry's directory {path.parent} does not exist")
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        poolclass=sa.pool.StaticPool,  # One file, one thread at a time: one connection.
        connect_args={"check_same_thread": False, "timeout": 10},
    )

    @sa.event.listens_for(engine, "connect")
    def _settings(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # WAL's default loses commits at a power cut.
        cursor.close()

    return engine
