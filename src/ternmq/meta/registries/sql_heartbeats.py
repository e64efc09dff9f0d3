"""Heartbeats in a SQL registry: when each meta server last heard each server.

A meta server writes how long ago it heard each server, again and again; the moments are those of
the database's clock, the only one that all of them share. What a meta server wrote before it died
grows old like everything else. A moment in the future means that this clock was set back: it says
nothing, and whoever lives writes a right one soon.
"""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ternmq.meta.registries.sql_tables import HEARD

KEPT_MS = 3_600_000
SKEW_MS = 1_000

_NOW = {
    "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    "mysql": "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
}


def put_heard(connection: sa.Connection, holder: str, silent_s: Mapping[str, float]) -> None:
    """This meta server hears exactly these, and did so that many seconds ago."""
    now_ms = _now_ms(connection)
    old = sa.or_(HEARD.c.holder == holder, HEARD.c.at_ms < now_ms - KEPT_MS)
    connection.execute(HEARD.delete().where(old))
    rows: list[dict[str, Any]] = [
        {"member": member, "holder": holder, "at_ms": now_ms - int(seconds * 1000)}
        for member, seconds in sorted(silent_s.items())
    ]
    if rows:
        connection.execute(HEARD.insert(), rows)


def heard_by_others(connection: sa.Connection, holder: str) -> dict[str, float]:
    """For how many seconds each was silent towards every other meta server."""
    now_ms = _now_ms(connection)
    latest = sa.select(HEARD.c.member, sa.func.max(HEARD.c.at_ms).label("at_ms"))
    others = sa.and_(HEARD.c.holder != holder, HEARD.c.at_ms <= now_ms + SKEW_MS)
    rows = connection.execute(latest.where(others).group_by(HEARD.c.member))
    return {row.member: max(0.0, (now_ms - row.at_ms) / 1000) for row in rows}


def _now_ms(connection: sa.Connection) -> int:
    name = connection.dialect.name
    clock = _NOW["mysql" if name == "mariadb" else name]
    return int(connection.execute(sa.text(f"SELECT {clock}")).scalar_one())
