"""News in a SQL registry: which rows each version changed.

The row `news` of the table `registry` holds the version. Raising it locks it until the transaction
ends, in every database, so the order of versions is the order of commits.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import sqlalchemy as sa

from ternmq.meta.registries.registry import NEWS_KEPT, News
from ternmq.meta.registries.sql_standings import all_standings
from ternmq.meta.registries.sql_tables import NEWS, REGISTRY, TOPIC_COLUMNS, TOPICS, topic_of

CHUNK = 500
"""Values per IN list; every database takes that many."""
TOLD_MAX = 500
"""Rows of news in one transaction; with more, whoever asks is told everything."""
TRIM_EVERY = 1_000
"""Versions between two clean-ups of old news."""

VERSION = sa.select(REGISTRY.c.value).where(REGISTRY.c.key == "news")

K = TypeVar("K")


def next_version(connection: sa.Connection) -> int:
    """Locks the row, in every database: no other transaction changes anything until this one ends.
    So it comes first."""
    this, value = REGISTRY.c.key == "news", REGISTRY.c.value
    after = sa.cast(sa.cast(value, sa.BigInteger) + 1, sa.String(200))
    connection.execute(REGISTRY.update().where(this).values(value=after))
    return version_of(connection)


def put_news(connection: sa.Connection, version: int, kind: str, what: Sequence[int]) -> None:
    rows = [{"version": version, "kind": kind, "what": each} for each in what]
    if len(rows) > TOLD_MAX:
        rows = [{"version": version, "kind": "everything", "what": 0}]
    connection.execute(NEWS.insert(), rows)
    if version % TRIM_EVERY == 0:
        connection.execute(NEWS.delete().where(NEWS.c.version <= version - NEWS_KEPT))


def version_of(connection: sa.Connection) -> int:
    return int(connection.execute(VERSION).scalar() or 0)


def news_since(connection: sa.Connection, since: int) -> News:
    version = version_of(connection)
    if version == since:  # By far the most usual.
        return News(version=version, topics=[])
    live = TOPICS.c.live_name.is_not(None)
    chosen = sa.select(NEWS.c.kind, NEWS.c.what)
    between = sa.and_(NEWS.c.version > since, NEWS.c.version <= version)
    rows = connection.execute(chosen.where(between)).all() if version > since else []
    too_much = any(row.kind == "everything" for row in rows)
    if too_much or version < since or version - since >= NEWS_KEPT:
        # Another registry than the one that was asked before, or too long ago.
        every = connection.execute(sa.select(*TOPIC_COLUMNS).where(live).order_by(TOPICS.c.id))
        topics = [topic_of(row) for row in every]
        deleted = sa.select(TOPICS.c.id).where(TOPICS.c.deleted_at_ms.is_not(None))
        return News(
            version=version,
            topics=topics,
            deleted=frozenset(connection.execute(deleted).scalars()),
            servers=True,
            everything=True,
            standings=all_standings(connection),
        )
    ids = {row.what for row in rows if row.kind == "topic"}
    topics = []
    for some in chunks(sorted(ids)):
        found = sa.select(*TOPIC_COLUMNS).where(sa.and_(live, TOPICS.c.id.in_(some)))
        topics += [topic_of(row) for row in connection.execute(found)]
    return News(
        version=version,
        topics=topics,
        deleted=frozenset(ids.difference(topic.id for topic in topics)),
        servers=any(row.kind == "server" for row in rows),
        standings=all_standings(connection) if any(row.kind == "standing" for row in rows) else [],
    )


def chunks(values: Iterable[K]) -> Iterator[list[K]]:
    everything = list(values)
    for first in range(0, len(everything), CHUNK):
        yield everything[first : first + CHUNK]
