"""The outbox in Django: rows on Django's own connection, sent by `transaction.on_commit`.

    outbox = DjangoOutbox(mq)                 # using="default"
    with transaction.atomic():
        Payment.objects.create(order="o-1")
        outbox.send("order.paid", b"...", key="o-1")

The insert is a cursor of Django's connection, so it is in Django's transaction; without one it is
committed by itself. Claims, sends and deletes are the relay's, on an SQLAlchemy engine for the same
database. The table is made by an operation in a migration of the application:
`operations = [ternmq.outbox.django.create_outbox()]`.
"""

from typing import Any, Unpack

from django.db import connections, migrations, transaction
from sqlalchemy import URL, Engine, create_engine

from ternmq.client.admin.delays import CancelResult
from ternmq.client.model.arguments import check_value
from ternmq.client.model.outgoing import SendOptions
from ternmq.core.errors import BadConfig
from ternmq.core.ids import id_from_text, id_to_text
from ternmq.outbox.migrations import outbox_sql
from ternmq.outbox.outbox import Messenger, Outbox
from ternmq.outbox.relay import RelaySettings
from ternmq.outbox.table import PARKED_MS, TABLE

_DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_SQL_OF = {"sqlite": "sqlite", "postgresql": "postgresql", "mysql": "mariadb"}


def make_engine(using: str = "default") -> Engine:
    """An SQLAlchemy engine for one of Django's databases."""
    connection = connections[using]
    driver = _DRIVERS.get(connection.vendor)
    if driver is None:
        raise BadConfig(f"the outbox knows no database like {connection.vendor!r}")
    settings = connection.settings_dict
    if driver == "sqlite":
        return create_engine(URL.create(driver, database=str(settings["NAME"])))
    return create_engine(
        URL.create(
            driver,
            username=settings["USER"] or None,
            password=settings["PASSWORD"] or None,
            host=settings["HOST"] or None,
            port=int(settings["PORT"]) if settings["PORT"] else None,
            database=settings["NAME"],
        )
    )


class DjangoOutbox(Outbox):
    """An `Outbox` whose rows are inserted by Django."""

    def __init__(
        self,
        mq: Messenger | None = None,
        *,
        using: str = "default",
        engine: Engine | None = None,
        table: str = TABLE,
        settings: RelaySettings | None = None,
    ) -> None:
        super().__init__(engine or make_engine(using), mq, table=table, settings=settings)
        self._using = using

    def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> str:  # type: ignore[override]
        """Insert one message in the current transaction; returns its id."""
        values = self.values(topic, body, options)
        connection = connections[self._using]
        quote = connection.ops.quote_name
        names = ", ".join(quote(name) for name in [*values, "attempts"])
        marks = ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO {quote(self.table.name)} ({names}) VALUES ({marks}, 0)"
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute(f"{statement} RETURNING id", list(values.values()))
                row = cursor.fetchone()[0]
            else:
                cursor.execute(statement, list(values.values()))
                row = cursor.lastrowid
        if values["claimed_by"] is not None:
            transaction.on_commit(lambda: self.wake([(0, row)]), using=self._using)
        return str(values["message_id"])

    def cancel(self, message_id: str) -> CancelResult:  # type: ignore[override]
        """Take a message back in the current transaction; see `Outbox.cancel`."""
        check_value("message_id", message_id, str)
        name = id_to_text(id_from_text(message_id))
        connection = connections[self._using]
        table = connection.ops.quote_name(self.table.name)
        unsent = "(broker_group IS NULL OR ready_ms = %s)"
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM {table} WHERE message_id = %s", [name])
            row = cursor.fetchone()
            if row is None:
                return CancelResult.UNKNOWN
            delete = f"DELETE FROM {table} WHERE id = %s AND message_id = %s AND {unsent}"
            cursor.execute(delete, [row[0], name, PARKED_MS])
            if cursor.rowcount:
                return CancelResult.CANCELLED
        return CancelResult.ALREADY_DISPATCHED


def create_outbox(table: str = TABLE) -> migrations.RunPython:
    """A migration operation that makes the table, and drops it backwards."""

    def make(apps: Any, editor: Any) -> None:
        sql = outbox_sql(_SQL_OF[editor.connection.vendor]).replace(TABLE, table)
        for statement in sql.split(";"):
            if statement.strip():
                editor.execute(statement)

    def drop(apps: Any, editor: Any) -> None:
        editor.execute(f"DROP TABLE {editor.connection.ops.quote_name(table)}")

    return migrations.RunPython(make, drop)
