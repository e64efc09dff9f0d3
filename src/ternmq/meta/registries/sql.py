"""The registry in a SQL database, by SQLAlchemy Core; see `sql_tables` for the tables.

Every change takes the lock of the row `news` first, so changes of one registry happen one after the
other, whichever meta server asks, and the order of versions is the order of commits. What another
transaction gets in the way of is simply done again. Never used from two threads at once:
`RegistryWorker` has one thread for it.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from ternmq.core.errors import BadConfig, Corrupt, DiskFull, TopicNotFound, Unavailable
from ternmq.discovery.directory import InUse
from ternmq.meta.registries.registry import (
    SCHEMA_VERSION,
    Behind,
    Change,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
    check_names,
)
from ternmq.meta.registries.sql_changes import (
    chunks,
    news_since,
    next_version,
    put_news,
    version_of,
)
from ternmq.meta.registries.sql_documents import (
    KEPT,
    delete_document,
    find_document,
    list_documents,
    put_document,
)
from ternmq.meta.registries.sql_engine import (
    SqliteRoom,
    draw_ids_after,
    hold_ids,
    server_engine,
    shown,
    sqlite_engine,
    wants_room,
    worth_repeating,
)
from ternmq.meta.registries.sql_heartbeats import heard_by_others, put_heard
from ternmq.meta.registries.sql_standings import all_standings, find_standing, replace_standing
from ternmq.meta.registries.sql_tables import (
    EPOCHS,
    GROUP_COLUMNS,
    GROUPS,
    METADATA,
    REGISTRY,
    SERVERS,
    TOPIC_COLUMNS,
    TOPICS,
    group_of,
    route_of,
    this_server,
    topic_of,
)
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic
from ternmq.wire.registry.documents import (
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)

ATTEMPTS_MAX = 5
"""Another meta server may make the same name between our look and our insert; then look again."""

MARK_NAME = "%unknown"

T = TypeVar("T")


class SqlRegistry:
    """Implements `registry.Registry`."""

    def __init__(
        self, engine: sa.Engine, *, description: str, room: SqliteRoom | None = None
    ) -> None:
        self._engine = engine
        self._room = room
        self._description = description
        self._cluster = ""
        self._holder = secrets.token_hex(8)

    @classmethod
    def open_sqlite(cls, path: Path) -> "SqlRegistry":
        """Open or make the registry file; raises `BadConfig`, `Corrupt`, `DiskFull`."""
        room = None if path.name == ":memory:" else SqliteRoom(path)
        return cls._open(sqlite_engine(path), f"sqlite {path}", room)

    @classmethod
    def open_server(cls, url: sa.URL) -> "SqlRegistry":
        """Open or make the registry in a database; raises `BadConfig`, `Unavailable`."""
        return cls._open(server_engine(url), shown(url))

    @classmethod
    def _open(
        cls, engine: sa.Engine, description: str, room: SqliteRoom | None = None
    ) -> "SqlRegistry":
        registry = cls(engine, description=description, room=room)
        try:
            registry._repeated(lambda connection: _create_tables(connection, description))
            version = registry._repeated(lambda c: _kept(c, "schema_version", str(SCHEMA_VERSION)))
            _check_version(version, description)
            registry._cluster = registry._repeated(lambda c: _kept(c, "cluster", _new_cluster()))
            registry._repeated(lambda c: _kept(c, "news", "0"))
            registry._repeated(lambda c: _kept(c, KEPT, "0"))
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
        chosen = sa.select(*TOPIC_COLUMNS).where(TOPICS.c.live_name.is_not(None))
        with self._transaction() as connection:
            return [topic_of(row) for row in connection.execute(chosen.order_by(TOPICS.c.id))]

    def groups(self) -> list[GroupRow]:
        chosen = sa.select(*GROUP_COLUMNS).where(GROUPS.c.live_name.is_not(None))
        with self._transaction() as connection:
            return [group_of(row) for row in connection.execute(chosen.order_by(GROUPS.c.id))]

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        return self._repeated(lambda connection: _create_topics(connection, wanted))

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        return self._repeated(lambda connection: _create_groups(connection, wanted))

    def update_topic(self, name: str, change: Change) -> Topic:
        return self._repeated(lambda connection: _update_topic(connection, name, change))

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        return self._repeated(lambda connection: _delete_topic(connection, name, deleted_at_ms))

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        chosen = sa.and_(GROUPS.c.topic_id == topic_id, GROUPS.c.live_name == name)
        gone = {"live_name": None, "deleted_at_ms": deleted_at_ms}
        update = GROUPS.update().where(chosen).values(gone)
        return self._repeated(lambda connection: connection.execute(update).rowcount > 0)

    def new_epoch(self, broker_group: str) -> int:
        return self._repeated(lambda connection: _new_epoch(connection, broker_group))

    def last_epoch(self, broker_group: str) -> int:
        chosen = sa.select(EPOCHS.c.epoch).where(EPOCHS.c.broker_group == broker_group)
        with self._transaction() as connection:
            return int(connection.execute(chosen).scalar() or 0)

    def standing(self, broker_group: str, kind: BrokerGroupKind) -> Standing | None:
        with self._transaction() as connection:
            return find_standing(connection, broker_group, kind)

    def standings(self) -> list[Standing]:
        with self._transaction() as connection:
            return all_standings(connection)

    def put_standing(self, new: Standing, expected_version: int) -> bool:
        assert new.version > expected_version

        def put(connection: sa.Connection) -> bool:
            put_news(connection, next_version(connection), "standing", [0])
            held = find_standing(connection, new.broker_group, new.kind)
            if (held.version if held is not None else 0) != expected_version:
                connection.rollback()
                return False
            replace_standing(connection, new, expected_version)
            return True

        return self._repeated(put)

    def servers(self) -> list[Route]:
        chosen = sa.select(SERVERS).order_by(SERVERS.c.kind, SERVERS.c.broker_group)
        with self._transaction() as connection:
            return [route_of(row) for row in connection.execute(chosen)]

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        values = {"address": route.address, "seen_at_ms": now_ms}
        new = {"kind": route.kind, "broker_group": route.broker_group, **values}

        def remember(connection: sa.Connection) -> None:
            put_news(connection, next_version(connection), "server", [0])
            update = SERVERS.update().where(this_server(route)).values(values)
            if not connection.execute(update).rowcount:
                connection.execute(SERVERS.insert().values(new))

        self._repeated(remember)

    def forget_server(self, route: Route) -> None:
        def forget(connection: sa.Connection) -> None:
            put_news(connection, next_version(connection), "server", [0])
            connection.execute(SERVERS.delete().where(this_server(route)))

        self._repeated(forget)

    def hold(self, silent_s: Mapping[str, float]) -> None:
        self._repeated(lambda connection: put_heard(connection, self._holder, silent_s))

    def show_clients(self, clients: Mapping[str, bytes]) -> None:
        """Nobody looks for clients in a database: `tern group show` has the consumers."""

    def held(self) -> dict[str, float | None]:
        with self._transaction() as connection:
            return {**heard_by_others(connection, self._holder)}

    def version(self) -> int:
        with self._transaction() as connection:
            return version_of(connection)

    def news(self, since: int) -> News:
        with self._transaction() as connection:
            return news_since(connection, since)

    def watch(self, wake: Callable[[], None]) -> bool:
        return False

    def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        chosen = sa.and_(TOPICS.c.id.in_(ids), TOPICS.c.deleted_at_ms.is_not(None))
        with self._transaction() as connection:
            return frozenset(connection.execute(sa.select(TOPICS.c.id).where(chosen)).scalars())

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        def reserve(connection: sa.Connection) -> Behind:
            check_names(used, _names_of(connection, used.names), self._description)
            return _reserve(connection, used, now_ms)

        return self._repeated(reserve)

    def leap(self, after: Callable[[int], int]) -> None:
        self._repeated(lambda connection: _leap(connection, after))

    def document(self, wanted: DocumentNamed, *, now_ms: int) -> Document | None:
        with self._transaction() as connection:
            return find_document(connection, wanted, now_ms)

    def documents(self, wanted: DocumentQuery, *, now_ms: int) -> list[Document]:
        with self._transaction() as connection:
            return list_documents(connection, wanted, now_ms)

    def put_document(self, wanted: DocumentPut, *, now_ms: int) -> Document:
        return self._repeated(lambda connection: put_document(connection, wanted, now_ms))

    def delete_document(self, wanted: DocumentDelete, *, now_ms: int) -> Document | None:
        return self._repeated(lambda connection: delete_document(connection, wanted, now_ms))

    def close(self) -> None:
        self._engine.dispose()

    def _repeated(self, work: Callable[[sa.Connection], T]) -> T:
        """Run a transaction again when another one was in its way, or room could be made."""
        attempt = 0
        while True:
            try:
                with self._engine.begin() as connection:
                    done = work(connection)
                if self._room is not None:
                    self._room.keep()
                return done
            except exc.DBAPIError as error:
                if self._room is not None and wants_room(error) and self._room.make(self._engine):
                    continue
                attempt += 1
                if attempt == ATTEMPTS_MAX or not worth_repeating(error):
                    raise _translated(error, self._description) from error

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """One transaction that reads; the database's own errors become ours."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except exc.DBAPIError as error:
            raise _translated(error, self._description) from error


def _create_topics(connection: sa.Connection, wanted: Sequence[NewTopic]) -> list[Topic]:
    by_name = {new.name: new for new in wanted}
    found = _topics_named(connection, by_name)
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
        version = next_version(connection)
        connection.execute(TOPICS.insert(), values)
        made = _topics_named(connection, [new.name for new in missing])
        put_news(connection, version, "topic", [topic.id for topic in made.values()])
        found |= made
    return [found[new.name] for new in wanted]


def _topics_named(connection: sa.Connection, wanted: Iterable[str]) -> dict[str, Topic]:
    found: dict[str, Topic] = {}
    for names in chunks(wanted):
        chosen = sa.select(*TOPIC_COLUMNS).where(TOPICS.c.live_name.in_(names))
        found.update((row.name, topic_of(row)) for row in connection.execute(chosen))
    return found


def _update_topic(connection: sa.Connection, name: str, change: Change) -> Topic:
    version = next_version(connection)
    topic = _live_topic(connection, name)
    changed = msgspec.structs.replace(topic, settings=change(topic.settings))
    text = msgspec.json.encode(changed.settings).decode()
    connection.execute(TOPICS.update().where(TOPICS.c.id == topic.id).values(settings=text))
    put_news(connection, version, "topic", [topic.id])
    return changed


def _delete_topic(connection: sa.Connection, name: str, deleted_at_ms: int) -> Topic:
    version = next_version(connection)
    topic = _live_topic(connection, name)
    gone = {"live_name": None, "deleted_at_ms": deleted_at_ms}
    connection.execute(TOPICS.update().where(TOPICS.c.id == topic.id).values(gone))
    of_topic = sa.and_(GROUPS.c.topic_id == topic.id, GROUPS.c.live_name.is_not(None))
    connection.execute(GROUPS.update().where(of_topic).values(gone))
    put_news(connection, version, "topic", [topic.id])
    return topic


def _live_topic(connection: sa.Connection, name: str) -> Topic:
    """Locked until the transaction ends."""
    found = sa.select(*TOPIC_COLUMNS).where(TOPICS.c.live_name == name)
    row = connection.execute(found.with_for_update()).first()
    if row is None:
        raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
    return topic_of(row)


def _create_groups(connection: sa.Connection, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
    by_key = {(new.topic_id, new.name): new for new in wanted}
    live: set[int] = set()
    for ids in chunks({new.topic_id for new in wanted}):
        alive = sa.and_(TOPICS.c.id.in_(ids), TOPICS.c.live_name.is_not(None))
        # Locked: a topic that is deleted meanwhile would leave its new groups behind.
        chosen = sa.select(TOPICS.c.id).where(alive).with_for_update(read=True)
        live.update(connection.execute(chosen).scalars())
    found = _groups_of(connection, live)
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
        connection.execute(GROUPS.insert(), values)
        found = _groups_of(connection, live)
    return [found.get((new.topic_id, new.name)) for new in wanted]


def _groups_of(connection: sa.Connection, topics: set[int]) -> dict[tuple[int, str], GroupRow]:
    found: dict[tuple[int, str], GroupRow] = {}
    for ids in chunks(topics):
        of_topics = sa.and_(GROUPS.c.topic_id.in_(ids), GROUPS.c.live_name.is_not(None))
        for row in connection.execute(sa.select(*GROUP_COLUMNS).where(of_topics)):
            found[row.topic_id, row.name] = group_of(row)
    return found


def _new_epoch(connection: sa.Connection, broker_group: str) -> int:
    this = EPOCHS.c.broker_group == broker_group
    raised = EPOCHS.update().where(this).values(epoch=EPOCHS.c.epoch + 1)
    if not connection.execute(raised).rowcount:
        # Not looked up: a row that appears only now is another server's and has its number.
        connection.execute(EPOCHS.insert().values(broker_group=broker_group, epoch=1))
        return 1
    return int(connection.execute(sa.select(EPOCHS.c.epoch).where(this)).scalar_one())


def _names_of(connection: sa.Connection, ids: Iterable[int]) -> dict[int, str]:
    """What these topics are called, or were when they were deleted."""
    found: dict[int, str] = {}
    for some in chunks(ids):
        chosen = sa.select(TOPICS.c.id, TOPICS.c.name).where(TOPICS.c.id.in_(some))
        rows = connection.execute(chosen.where(TOPICS.c.name != MARK_NAME))
        found.update((row.id, row.name) for row in rows)
    return found


def _reserve(connection: sa.Connection, used: InUse, now_ms: int) -> Behind:
    named = sa.or_(TOPICS.c.live_name.is_not(None), TOPICS.c.deleted_at_ms.is_not(None))
    known = connection.execute(sa.select(TOPICS.c.id).where(named)).scalars()
    unknown = used.topic_ids.difference(known)
    _mark(connection, TOPICS, max(unknown, default=0), {"created_at_ms": now_ms, "settings": "{}"})
    new = {"created_at_ms": now_ms, "topic_id": 0}
    group_ids = _mark(connection, GROUPS, used.group_id, new)
    this = EPOCHS.c.broker_group == used.broker_group
    epoch = connection.execute(sa.select(EPOCHS.c.epoch).where(this)).scalar()
    if epoch is None and used.epoch:
        first = {"broker_group": used.broker_group, "epoch": used.epoch}
        connection.execute(EPOCHS.insert().values(first))
    elif epoch is not None and epoch < used.epoch:
        lower = sa.and_(this, EPOCHS.c.epoch < used.epoch)
        connection.execute(EPOCHS.update().where(lower).values(epoch=used.epoch))
    return Behind(topic_ids=unknown, group_ids=group_ids, epoch=(epoch or 0) < used.epoch)


def _leap(connection: sa.Connection, after: Callable[[int], int]) -> None:
    new = {"created_at_ms": 0}
    for table, values in ((TOPICS, {**new, "settings": "{}"}), (GROUPS, {**new, "topic_id": 0})):
        last = connection.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0
        _mark(connection, table, after(last), values)


def _mark(connection: sa.Connection, table: sa.Table, used: int, new: dict[str, Any]) -> bool:
    """Make `used` the least id that is taken; False if it or a higher one is taken already."""
    highest_of = sa.select(sa.func.max(table.c.id))
    if (connection.execute(highest_of).scalar() or 0) >= used:
        return False
    hold_ids(connection, table)
    if (connection.execute(highest_of).scalar() or 0) >= used:
        return False
    connection.execute(table.insert().values(id=used, name=MARK_NAME, live_name=None, **new))
    draw_ids_after(connection, table, used)
    return True


def _create_tables(connection: sa.Connection, description: str) -> None:
    there = set(sa.inspect(connection).get_table_names())
    foreign = there.intersection(METADATA.tables) if REGISTRY.name not in there else set()
    if foreign:
        raise BadConfig(
            f"the database of the registry ({description}) has a table {min(foreign)!r} of "
            "something else; give TernMQ a database of its own"
        )
    METADATA.create_all(connection)


def _check_version(found: str, description: str) -> None:
    if found != str(SCHEMA_VERSION):
        raise BadConfig(
            f"the registry ({description}) has schema {found}, this version of ternmq knows "
            f"{SCHEMA_VERSION}; use the version that wrote it, or a newer one"
        )


def _new_cluster() -> str:
    """Drawn when the registry is first opened; never changes after that."""
    return secrets.token_hex(8)


def _kept(connection: sa.Connection, key: str, first: str) -> str:
    """What the registry keeps under this key; `first` when it has nothing yet."""
    chosen = sa.select(REGISTRY.c.value).where(REGISTRY.c.key == key)
    found: str | None = connection.execute(chosen).scalar()
    if found is None:
        connection.execute(REGISTRY.insert().values({"key": key, "value": first}))
    return first if found is None else found


def _translated(error: exc.DBAPIError, description: str) -> Exception:
    text = " ".join(str(error.orig).split())  # Drivers write several lines.
    if "disk is full" in text:
        return DiskFull(f"no space left for the registry ({description})")
    if "malformed" in text or "not a database" in text:
        return Corrupt(f"the registry ({description}) is damaged: {text}; restore a copy of it")
    return Unavailable(f"the registry ({description}) does not answer: {text}")
