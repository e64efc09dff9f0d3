"""The inbox table: one row per message that a group has handled.

| column | means |
|---|---|
| id | SHA-256 of group and key: compares alike in every database, whatever its collation |
| group_name, message_key | what it stands for, for people; the key cut to 255 characters |
| handled_ms | when |
| working_until_ms | plain mode only: somebody is at it until then; 0: done |
"""

from hashlib import sha256
from typing import Any

from sqlalchemy import BigInteger, Column, Index, LargeBinary, MetaData, String, Table
from sqlalchemy.dialects import mysql

TABLE = "tern_inbox"
KEY_SHOWN_MAX = 255


OPTIONS: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4"}


def columns() -> list[Column[Any]]:
    """New columns, for a table or a migration."""
    fixed = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
    return [
        Column("id", fixed, primary_key=True),
        Column("group_name", String(127), nullable=False),
        Column("message_key", String(KEY_SHOWN_MAX), nullable=False),
        Column("handled_ms", BigInteger, nullable=False),
        Column("working_until_ms", BigInteger, nullable=False, server_default="0"),
    ]


def indexes(name: str) -> dict[str, list[str]]:
    """Forgetting looks by age."""
    return {f"{name}_handled": ["handled_ms"]}


def make_inbox_table(name: str = TABLE, schema: str | None = None) -> Table:
    """The table under the name and in the schema that the application chose."""
    made = [Index(index, *names) for index, names in indexes(name).items()]
    return Table(name, MetaData(schema=schema), *columns(), *made, **OPTIONS)


def row_id(group: str, key: str) -> bytes:
    """The primary key of a group's message."""
    return sha256(f"{group}\0{key}".encode()).digest()
