"""Three ways to make the inbox table make the same: `create_tables`, Alembic, SQL files."""

import io
from pathlib import Path
from typing import Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Table, create_engine, inspect
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from ternmq.core.errors import BadRequest
from ternmq.inbox.migrations import DATABASES, create_inbox, drop_inbox, inbox_sql
from ternmq.inbox.table import TABLE, make_inbox_table
from tests.tidy.source import ROOT

DIALECTS: dict[str, Any] = {"postgresql": postgresql, "mariadb": mysql, "sqlite": sqlite}


def written(table: Table, database: str) -> str:
    dialect = DIALECTS[database].dialect()
    made = [str(CreateTable(table).compile(dialect=dialect)).strip()]
    indexes = sorted(table.indexes, key=lambda index: str(index.name))
    made += [str(CreateIndex(index).compile(dialect=dialect)).strip() for index in indexes]
    lines = [line.rstrip().replace("\t", "    ") for one in made for line in f"{one};".split("\n")]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("database", DATABASES)
def test_the_sql_file_is_the_table(database: str) -> None:
    assert inbox_sql(database) == written(make_inbox_table(), database)
    page = (ROOT / "docs" / "inbox.md").read_text(encoding="utf-8")
    assert inbox_sql(database) in page


@pytest.mark.parametrize("database", DATABASES)
def test_alembic_writes_the_same_statements(database: str) -> None:
    out = io.StringIO()
    options = {"as_sql": True, "output_buffer": out}
    dialect = DIALECTS[database].dialect()
    create_inbox(Operations(MigrationContext.configure(dialect=dialect, opts=options)))

    assert flat(out.getvalue()) == flat(inbox_sql(database))


def flat(sql: str) -> list[str]:
    return sorted(" ".join(one.split()) for one in sql.split(";") if one.strip())


def test_alembic_makes_and_drops_it(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    with engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        create_inbox(op)
        assert {column["name"] for column in inspect(connection).get_columns(TABLE)} == set(
            make_inbox_table().c.keys()
        )
        drop_inbox(op)
        assert not inspect(connection).has_table(TABLE)
    engine.dispose()


def test_an_unknown_database_is_refused() -> None:
    with pytest.raises(BadRequest, match="is none of postgresql"):
        inbox_sql("oracle")
