"""The outbox table: one row per message that is committed and not yet known to be stored.

| column | means |
|---|---|
| id | row number; order of insertion |
| message_id | the message's id, decided at the insert, the same in every send |
| topic, order_hash | where it goes; what it must not overtake (see `StoredMessage`) |
| broker_group | the only group it may be sent to; chosen before the first send |
| content | body and options |
| created_ms | when it was inserted |
| ready_ms | from when on a relay may take it; the largest number: parked, waits for a person |
| claimed_by | who sends it until `ready_ms` |
| attempts, error | sends that failed, and why the last did |

A row is born claimed by the process that inserts it, so no relay takes it while that process is
about to send it. A claim is nothing but a `ready_ms` in the future: whoever dies loses it by time.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import mysql

TABLE = "tern_outbox"
PARKED_MS = 2**63 - 1
OPTIONS: dict[str, Any] = {
    "sqlite_autoincrement": True,  # A number that was committed is never used again.
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
}
_MYSQL = ("mysql", "mariadb")
_BIG = BigInteger().with_variant(Integer, "sqlite")  # Only INTEGER counts up by itself there.


def columns() -> list[Column[Any]]:
    """New columns, for a table or a migration."""
    return [
        Column("id", _BIG, primary_key=True, autoincrement=True),
        Column("message_id", String(26), nullable=False),
        Column("topic", String(127), nullable=False),
        Column("order_hash", BigInteger),
        Column("broker_group", String(127)),
        Column("content", LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL), nullable=False),
        Column("created_ms", BigInteger, nullable=False),
        Column("ready_ms", BigInteger, nullable=False),
        Column("claimed_by", String(64)),
        Column("attempts", Integer, nullable=False, server_default="0"),
        Column("error", Text),
    ]


def indexes(name: str) -> dict[str, list[str]]:
    """What relays look by: what is due; what of an order key is not due."""
    return {
        f"{name}_order": ["order_hash", "ready_ms", "id"],
        f"{name}_ready": ["ready_ms", "id"],
    }


def message_index(name: str) -> tuple[str, dict[str, Any]]:
    """What a cancel looks by: only of rows that no broker group was chosen for, since others cannot
    be cancelled any more; so rows that go out at once do not pay for it (but in MariaDB)."""
    waiting = text("broker_group IS NULL")
    return f"{name}_message", {"postgresql_where": waiting, "sqlite_where": waiting}


def make_table(name: str = TABLE, schema: str | None = None) -> Table:
    """The table under the name and in the schema that the application chose."""
    made = [Index(index, *names) for index, names in indexes(name).items()]
    index, options = message_index(name)
    made.append(Index(index, "message_id", **options))
    return Table(name, MetaData(schema=schema), *columns(), *made, **OPTIONS)
