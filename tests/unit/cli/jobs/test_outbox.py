"""`tern outbox`: what an operator sees and does; the database is real, a node is not needed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session
from typer.testing import CliRunner

from ternmq.cli.main import app
from ternmq.core.errors import BadRequest
from ternmq.outbox import Outbox

UNREADABLE = (
    "INSERT INTO tern_outbox (message_id, topic, content, created_ms, ready_ms, error, attempts)"
    " VALUES ('00000000000000000000000001', 'x', :content, 1, 9223372036854775807, 'no', 3)"
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'app.db'}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """Rows 1 (due), 2 (for later), 3 (of a group that is gone), 4 (parked)."""
    made = create_engine(url)
    outbox = Outbox(made)
    outbox.create_tables()
    with Session(made) as session, session.begin():
        outbox.send(session, "t", b"1", key="o-1", properties={"n": 2**70})
        outbox.send(session, "t", b"later", delay=3600)
        outbox.send(session, "t", b"2")
    with made.begin() as connection:
        connection.execute(text("UPDATE tern_outbox SET broker_group = 'gone' WHERE id = 3"))
        connection.execute(text(UNREADABLE), {"content": b"\xff"})
    yield made
    made.dispose()


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["outbox", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def column(engine: Engine, query: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(query)).scalars())


def test_rows_are_listed_with_what_keeps_them(engine: Engine, url: str) -> None:
    rows = json.loads(run("list", "-d", url, "--json"))

    assert [row["row"] for row in rows] == [1, 2, 3, 4]
    assert [row["state"].split()[0] for row in rows] == ["due", "waits", "due", "parked"]
    assert (rows[3]["attempts"], rows[3]["error"]) == (3, "no")
    table = run("list", "-d", url, "--topic", "t", "--count", "1")
    assert table.splitlines()[0].split()[:2] == ["row", "topic"]
    assert len(table.splitlines()) == 2
    assert [row["row"] for row in json.loads(run("list", "-d", url, "--parked", "--json"))] == [4]


def test_one_row_is_shown_with_its_message(engine: Engine, url: str) -> None:
    shown = json.loads(run("show", "1", "-d", url))
    assert (shown["body"], shown["key"], shown["properties"]) == ("1", "o-1", {"n": 2**70})
    assert json.loads(run("show", "2", "-d", url))["due_at"] is not None
    assert "cannot be read" in json.loads(run("show", "4", "-d", url))["problem"]
    with pytest.raises(BadRequest, match="there is no row 77"):
        run("show", "77", "-d", url)


def test_a_parked_row_is_made_due_again(engine: Engine, url: str) -> None:
    assert run("retry", "--parked", "-d", url) == "1 rows due\n"
    assert column(engine, "SELECT attempts FROM tern_outbox WHERE id = 4") == [0]
    assert json.loads(run("list", "-d", url, "--parked", "--json")) == []
    with pytest.raises(BadRequest, match="say which rows"):
        run("retry", "-d", url)


def test_rows_that_are_being_sent_are_left_alone(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE tern_outbox SET claimed_by = 'x', ready_ms = 9e15 WHERE id = 3")
        )

    for command in (["retry", "3"], ["delete", "3", "--yes"], ["move", "3", "--to", "b", "--yes"]):
        run(*command, "-d", url, code=1)
    assert column(engine, "SELECT broker_group FROM tern_outbox WHERE id = 3") == ["gone"]


def test_deleting_asks_first(engine: Engine, url: str) -> None:
    with pytest.raises(BadRequest, match="say --yes"):
        run("delete", "1", "-d", url)
    assert json.loads(run("delete", "1", "4", "-d", url, "--yes", "--json"))["deleted"] == 2
    assert column(engine, "SELECT id FROM tern_outbox ORDER BY id") == [2, 3]


def test_rows_of_a_group_that_is_gone_are_moved(engine: Engine, url: str) -> None:
    run("move", "--from", "gone", "--to", "b", "-d", url, "--yes")
    assert column(engine, "SELECT broker_group FROM tern_outbox WHERE id = 3") == ["b"]
    with pytest.raises(BadRequest, match="cannot be the name"):
        run("move", "--from", "b", "--to", "no such name", "-d", url, "--yes")


def test_tables_by_command_and_as_sql(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    run("create", "-d", url, "--table", "messages_out")
    assert json.loads(run("list", "-d", url, "--table", "messages_out", "--json")) == []
    assert "CREATE TABLE tern_outbox" in run("sql", "postgresql")
    assert "CREATE TABLE tern_inbox" in run("sql", "mariadb", "--inbox")


def test_a_wrong_database_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="is no database URL; one looks like postgresql"):
        run("list", "-d", "nonsense")
    with pytest.raises(BadRequest, match="is no database URL"):
        run("list", "-d", "oracl://x")
    empty = tmp_path / "empty.db"
    empty.touch()
    with pytest.raises(BadRequest, match="no table 'tern_outbox' in sqlite"):
        run("list", "-d", f"sqlite:///{empty}")


@pytest.mark.parametrize("kind", ["sqlite", "sqlite+aiosqlite"])
def test_a_misspelt_file_is_said_and_not_made(tmp_path: Path, kind: str) -> None:
    typo = tmp_path / "typo.db"
    with pytest.raises(BadRequest, match=r"there is no file .*typo\.db"):
        run("list", "-d", f"{kind}:///{typo}")
    assert not typo.exists()


def test_the_url_of_an_asynchronous_driver_will_do(engine: Engine, url: str) -> None:
    """Applications have one; the tables are the same."""
    asynchronous = url.replace("sqlite:", "sqlite+aiosqlite:")
    assert run("list", "-d", asynchronous, "--json") == run("list", "-d", url, "--json")


@pytest.mark.parametrize("url", ["mysql+mysqldb://u:secret@h/x", "u:secret@h/x", "x://u:secret@h"])
def test_a_password_is_never_shown(url: str) -> None:
    with pytest.raises(BadRequest) as refused:
        run("list", "-d", url)
    assert "secret" not in refused.value.message
