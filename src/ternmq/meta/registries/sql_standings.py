"""Standings in a SQL registry: one row per broker group, replaced only at a known version."""

from typing import Any

import msgspec
import sqlalchemy as sa

from ternmq.core.errors import Corrupt
from ternmq.meta.registries.sql_tables import STANDINGS
from ternmq.wire.messages.standings import BrokerGroupKind, Standing


def find_standing(
    connection: sa.Connection, broker_group: str, kind: BrokerGroupKind
) -> Standing | None:
    row = connection.execute(sa.select(STANDINGS).where(_this(broker_group, kind))).first()
    return None if row is None else _standing(row)


def all_standings(connection: sa.Connection) -> list[Standing]:
    chosen = sa.select(STANDINGS).order_by(STANDINGS.c.kind, STANDINGS.c.broker_group)
    return [_standing(row) for row in connection.execute(chosen)]


def replace_standing(connection: sa.Connection, new: Standing, expected_version: int) -> None:
    """The caller holds the lock of the news and has compared."""
    text = msgspec.json.encode(new).decode()
    values: dict[str, Any] = {"version": new.version, "standing": text}
    if expected_version == 0:
        key = {"kind": new.kind, "broker_group": new.broker_group}
        connection.execute(STANDINGS.insert().values({**key, **values}))
        return
    this = sa.and_(_this(new.broker_group, new.kind), STANDINGS.c.version == expected_version)
    changed = connection.execute(STANDINGS.update().where(this).values(values)).rowcount
    assert changed == 1, "somebody changed a standing without the lock"


def _this(broker_group: str, kind: BrokerGroupKind) -> sa.ColumnElement[bool]:
    return sa.and_(STANDINGS.c.kind == kind, STANDINGS.c.broker_group == broker_group)


def _standing(row: Any) -> Standing:
    try:
        return msgspec.json.decode(row.standing, type=Standing)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"standing of {row.broker_group!r} in the registry: {error}") from error
