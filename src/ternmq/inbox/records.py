"""SQL on inbox rows: every statement runs on one connection inside the caller's transaction.

`take` is the heart: insert unless there. While another transaction has inserted the same row and
not ended, PostgreSQL and MariaDB wait for it, and SQLite lets one writer in at a time; so of two
workers with one message one works and the other learns the outcome. Synchronous.
"""

from typing import Any

from sqlalchemy import Connection, Insert, Table, delete, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError

from ternmq.core.database import lacks_table
from ternmq.core.errors import BadConfig, BadRequest
from ternmq.inbox.table import KEY_SHOWN_MAX, row_id


def insert_if_new(table: Table, dialect: str) -> Insert:
    """The statement that inserts a row unless its key is there."""
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    if dialect in ("mysql", "mariadb"):
        return mysql.insert(table).prefix_with("IGNORE")
    raise BadConfig(f"the inbox knows PostgreSQL, MariaDB and SQLite, not {dialect!r}")


class InboxRecords:
    """The statements for one table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def take(
        self, connection: Connection, group: str, key: str, *, now_ms: int, until_ms: int = 0
    ) -> bool:
        """Record a message; False when it is recorded already."""
        values = {
            "id": row_id(group, key),
            "group_name": group,
            "message_key": key[:KEY_SHOWN_MAX].replace("\0", ""),  # PostgreSQL has no NUL.
            "handled_ms": now_ms,
            "working_until_ms": until_ms,
        }
        statement = insert_if_new(self.table, connection.dialect.name)
        options = {"preserve_rowcount": True}  # Else SQLAlchemy may say -1 for an INSERT.
        try:
            done = connection.execute(statement.values(values), execution_options=options)
        except DBAPIError as error:
            if not lacks_table(error):
                raise
            raise BadRequest(
                f"there is no table {self.table.fullname!r} in this database: "
                "inbox.create_tables() makes it, or a migration (docs/inbox.md)"
            ) from error
        assert done.rowcount in (0, 1), f"the driver counts {done.rowcount} inserted rows"
        return done.rowcount == 1

    def take_over(
        self, connection: Connection, group: str, key: str, *, now_ms: int, until_ms: int
    ) -> bool:
        """Take the place of a worker whose time is up; False when it is done or still working."""
        table = self.table
        lapsed = (
            table.c.id == row_id(group, key),
            table.c.working_until_ms > 0,
            table.c.working_until_ms <= now_ms,
        )
        values = {"working_until_ms": until_ms, "handled_ms": now_ms}
        return bool(connection.execute(update(table).where(*lapsed).values(values)).rowcount)

    def finish(self, connection: Connection, group: str, key: str, *, until_ms: int) -> None:
        """The work is done."""
        connection.execute(
            update(self.table).where(*self._own(group, key, until_ms)).values(working_until_ms=0)
        )

    def give_up(self, connection: Connection, group: str, key: str, *, until_ms: int) -> None:
        """The work failed: the next delivery starts over."""
        connection.execute(delete(self.table).where(*self._own(group, key, until_ms)))

    def working_until(self, connection: Connection, group: str, key: str) -> int | None:
        """0: handled; None: there is no record."""
        query = select(self.table.c.working_until_ms).where(self.table.c.id == row_id(group, key))
        return connection.execute(query).scalar()

    def forget(self, connection: Connection, *, before_ms: int, rows_max: int) -> int:
        """Remove what was handled before then, at most so many rows; returns how many."""
        table = self.table
        query = select(table.c.id).where(table.c.handled_ms < before_ms)
        ids = connection.execute(query.order_by(table.c.handled_ms).limit(rows_max)).scalars().all()
        gone = 0
        for at in range(0, len(ids), 500):
            some = ids[at : at + 500]
            gone += connection.execute(delete(table).where(table.c.id.in_(some))).rowcount
        return gone

    def _own(self, group: str, key: str, until_ms: int) -> tuple[Any, Any]:
        table = self.table
        return table.c.id == row_id(group, key), table.c.working_until_ms == until_ms
