"""The tables of a registry in SQL, and rows of them as records. No transactions here.

    registry   key, value                           the schema's version, the cluster's id, the news
    topics     id, name, live_name, created_at_ms, deleted_at_ms, settings (json text)
    groups     id, topic_id, name, live_name, created_at_ms, deleted_at_ms
    epochs     broker_group, epoch
    servers    kind, broker_group, address, seen_at_ms
    standings  kind, broker_group, version, standing (json text)
    heard      member, holder, at_ms                whom each meta server heard, and when
    news       version, kind, what                  which rows changed, for other meta servers
    documents  kind, name, version, body, size, changed_at_ms, expires_at_ms, request

Deleted rows stay: they are how ids are never reused, and they tell what an old id meant. A row
without `live_name` and without `deleted_at_ms` is a mark: ids up to it are in use by data that this
registry knows nothing of. `live_name` is the name while the row lives and NULL after, so that a
plain unique constraint, which every database has and in which NULLs differ, allows one live topic
per name. Names are ASCII and differ by case in every database, MariaDB included.
"""

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from ternmq.core.errors import Corrupt
from ternmq.meta.registries.registry import GroupRow
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.registry.documents import DOCUMENT_SIZE_MAX

NAME_SIZE_COLUMN = 400
"""Our own names hold a topic's and a group's name."""

_id_type = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
METADATA = sa.MetaData()


def _name_type(size: int = NAME_SIZE_COLUMN) -> sa.types.TypeEngine[str]:
    by_bytes = mysql.VARCHAR(size, charset="ascii", collation="ascii_bin")
    return sa.String(size).with_variant(by_bytes, "mysql", "mariadb")


def _sorted_type(size: int) -> sa.types.TypeEngine[str]:
    """Sorted by bytes in every database, so that a prefix is a range."""
    return _name_type(size).with_variant(sa.String(size, collation="C"), "postgresql")


REGISTRY = sa.Table(
    "registry",
    METADATA,
    sa.Column("key", _name_type(60), primary_key=True),
    sa.Column("value", sa.String(200), nullable=False),
)
TOPICS = sa.Table(
    "topics",
    METADATA,
    sa.Column("id", _id_type, primary_key=True, autoincrement=True),
    sa.Column("name", _name_type(), nullable=False),
    sa.Column("live_name", _name_type(), unique=True),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("deleted_at_ms", sa.BigInteger),
    sa.Column("settings", sa.Text, nullable=False),
    sqlite_autoincrement=True,
)
GROUPS = sa.Table(
    "groups",
    METADATA,
    sa.Column("id", _id_type, primary_key=True, autoincrement=True),
    sa.Column("topic_id", sa.BigInteger, nullable=False),
    sa.Column("name", _name_type(), nullable=False),
    sa.Column("live_name", _name_type()),
    sa.Column("created_at_ms", sa.BigInteger, nullable=False),
    sa.Column("deleted_at_ms", sa.BigInteger),
    sa.UniqueConstraint("topic_id", "live_name"),
    sqlite_autoincrement=True,
)
EPOCHS = sa.Table(
    "epochs",
    METADATA,
    sa.Column("broker_group", _name_type(), primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)
SERVERS = sa.Table(
    "servers",
    METADATA,
    sa.Column("kind", _name_type(20), primary_key=True),
    sa.Column("broker_group", _name_type(), primary_key=True),
    sa.Column("address", sa.String(NAME_SIZE_COLUMN), nullable=False),
    sa.Column("seen_at_ms", sa.BigInteger, nullable=False),
)
STANDINGS = sa.Table(
    "standings",
    METADATA,
    sa.Column("kind", _name_type(20), primary_key=True),
    sa.Column("broker_group", _name_type(), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("standing", sa.Text, nullable=False),
)
HEARD = sa.Table(
    "heard",
    METADATA,
    sa.Column("member", _name_type(40), primary_key=True),
    sa.Column("holder", _name_type(40), primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
NEWS = sa.Table(
    "news",
    METADATA,
    sa.Column("version", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", _name_type(20), primary_key=True),
    sa.Column("what", sa.BigInteger, primary_key=True, autoincrement=False),
)

DOCUMENTS = sa.Table(
    "documents",
    METADATA,
    sa.Column("kind", _sorted_type(40), primary_key=True),
    sa.Column("name", _sorted_type(200), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("body", sa.LargeBinary(DOCUMENT_SIZE_MAX), nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("changed_at_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
    sa.Column("request", _name_type(64), nullable=False),
)

TOPIC_COLUMNS = (TOPICS.c.id, TOPICS.c.name, TOPICS.c.created_at_ms, TOPICS.c.settings)
GROUP_COLUMNS = (GROUPS.c.id, GROUPS.c.topic_id, GROUPS.c.name)


def topic_of(row: Any) -> Topic:
    try:
        settings = msgspec.json.decode(row.settings, type=TopicSettings)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"settings of topic {row.name!r} in the registry: {error}") from error
    return Topic(id=row.id, name=row.name, created_at_ms=row.created_at_ms, settings=settings)


def group_of(row: Any) -> GroupRow:
    return GroupRow(id=row.id, topic_id=row.topic_id, name=row.name)


def route_of(row: Any) -> Route:
    return Route(broker_group=row.broker_group, address=row.address, kind=row.kind)


def this_server(route: Route) -> sa.ColumnElement[bool]:
    return sa.and_(SERVERS.c.kind == route.kind, SERVERS.c.broker_group == route.broker_group)
