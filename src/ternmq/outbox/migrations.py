"""The outbox table as Alembic operations, and as SQL text for people without Alembic.

    from alembic import op
    from ternmq.outbox.migrations import create_outbox, drop_outbox

    def upgrade(): create_outbox(op)
    def downgrade(): drop_outbox(op)

They work offline (`alembic upgrade --sql`) too. The SQL files lie beside this one.
"""

from importlib.resources import files
from typing import Any

from ternmq.core.errors import BadRequest
from ternmq.outbox.table import OPTIONS, TABLE, columns, indexes, message_index

DATABASES = ("postgresql", "mariadb", "sqlite")


def create_outbox(op: Any, table: str = TABLE, schema: str | None = None) -> None:
    """`op` is alembic's."""
    op.create_table(table, *columns(), schema=schema, **OPTIONS)
    for name, names in indexes(table).items():
        op.create_index(name, table, names, schema=schema)
    name, options = message_index(table)
    op.create_index(name, table, ["message_id"], schema=schema, **options)


def drop_outbox(op: Any, table: str = TABLE, schema: str | None = None) -> None:
    op.drop_table(table, schema=schema)


def outbox_sql(database: str) -> str:
    """The statements for one kind of database."""
    if database not in DATABASES:
        raise BadRequest(f"{database!r} is none of {', '.join(DATABASES)}")
    return (files("ternmq.outbox") / f"{database}.sql").read_text(encoding="utf-8")
