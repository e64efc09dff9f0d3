"""What only the SQL registry has: its schema, its file, its errors, and company on the file."""

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

from ternmq.core.errors import BadConfig, Corrupt, DiskFull, Unavailable
from ternmq.meta.registries import sql
from ternmq.meta.registries.registry import NewTopic
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.wire.messages.topics import TopicSettings


def a_topic(name: str = "orders") -> NewTopic:
    return NewTopic(name=name, settings=TopicSettings(), created_at_ms=5)


def test_the_schema_of_the_file(tmp_path: Path) -> None:
    """A change here needs a new SCHEMA_VERSION and a migration; a new table is made by itself."""
    SqlRegistry.open_sqlite(tmp_path / "r.db").close()
    with sqlite3.connect(tmp_path / "r.db") as raw:
        tables = {
            name: [column[1] for column in raw.execute(f"PRAGMA table_info({name})")]
            for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith("sqlite_")
        }
        version = raw.execute("SELECT value FROM registry WHERE key = 'schema_version'").fetchall()
    raw.close()

    assert tables == {
        "registry": ["key", "value"],
        "topics": ["id", "name", "live_name", "created_at_ms", "deleted_at_ms", "settings"],
        "groups": ["id", "topic_id", "name", "live_name", "created_at_ms", "deleted_at_ms"],
        "epochs": ["broker_group", "epoch"],
        "servers": ["kind", "broker_group", "address", "seen_at_ms"],
        "standings": ["kind", "broker_group", "version", "standing"],
        "heard": ["member", "holder", "at_ms"],
        "news": ["version", "kind", "what"],
        "documents": [
            "kind",
            "name",
            "version",
            "body",
            "size",
            "changed_at_ms",
            "expires_at_ms",
            "request",
        ],
    }
    assert version == [("1",)]


def test_a_cluster_keeps_its_id(tmp_path: Path) -> None:
    """An archive knows whose it is."""
    first = SqlRegistry.open_sqlite(tmp_path / "r.db")
    first.close()
    again = SqlRegistry.open_sqlite(tmp_path / "r.db")
    other = SqlRegistry.open_sqlite(tmp_path / "other.db")

    assert first.cluster == again.cluster != other.cluster
    again.close()
    other.close()


def test_commits_survive_a_power_cut(tmp_path: Path) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    with registry._engine.connect() as connection:
        journal = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar()
    registry.close()

    assert (journal, synchronous) == ("wal", 2)  # 2 is FULL.


def test_deleted_rows_stay_to_tell_what_an_id_meant(tmp_path: Path) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    registry.create_topics([a_topic()])
    registry.delete_topic("orders", deleted_at_ms=77)
    registry.close()
    with sqlite3.connect(tmp_path / "r.db") as raw:
        rows = raw.execute("SELECT id, name, live_name, deleted_at_ms FROM topics").fetchall()
    raw.close()

    assert rows == [(1, "orders", None, 77)]


def test_two_servers_on_one_registry_agree(tmp_path: Path) -> None:
    one = SqlRegistry.open_sqlite(tmp_path / "r.db")
    two = SqlRegistry.open_sqlite(tmp_path / "r.db")

    assert one.create_topics([a_topic()]) == two.create_topics([a_topic()])
    assert [one.new_epoch("a"), two.new_epoch("a"), one.new_epoch("a")] == [1, 2, 3]
    one.close()
    two.close()


def test_losing_a_race_for_a_name_finds_the_winners_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    create_topics = sql._create_topics
    raced = False

    def late(connection: sa.Connection, wanted: list[NewTopic]) -> object:
        nonlocal raced
        if not raced:
            raced = True
            raise exc.IntegrityError("insert", {}, Exception("UNIQUE constraint failed"))
        return create_topics(connection, wanted)

    monkeypatch.setattr(sql, "_create_topics", late)

    [topic] = registry.create_topics([a_topic()])
    assert topic.name == "orders"
    registry.close()


def test_a_race_that_is_lost_for_ever_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")

    def always(connection: sa.Connection, broker_group: str) -> int:
        raise exc.IntegrityError("insert", {}, Exception("UNIQUE constraint failed"))

    monkeypatch.setattr(sql, "_new_epoch", always)

    with pytest.raises(Unavailable, match="UNIQUE"):
        registry.new_epoch("a")
    registry.close()


def test_a_registry_of_another_version_is_refused(tmp_path: Path) -> None:
    SqlRegistry.open_sqlite(tmp_path / "r.db").close()
    with sqlite3.connect(tmp_path / "r.db") as raw:
        raw.execute("UPDATE registry SET value = '99'")
    raw.close()

    with pytest.raises(BadConfig, match="schema 99"):
        SqlRegistry.open_sqlite(tmp_path / "r.db")


def test_a_file_that_is_no_database_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"this is not a database" * 100)

    with pytest.raises(Corrupt, match=r"r\.db"):
        SqlRegistry.open_sqlite(tmp_path / "r.db")


def test_settings_that_do_not_read_name_the_topic(tmp_path: Path) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    registry.create_topics([a_topic()])
    registry.close()
    with sqlite3.connect(tmp_path / "r.db") as raw:
        raw.execute("UPDATE topics SET settings = '{'")
    raw.close()
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")

    with pytest.raises(Corrupt, match="'orders'"):
        registry.topics()
    registry.close()


def test_a_missing_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="does not exist"):
        SqlRegistry.open_sqlite(tmp_path / "missing" / "r.db")


def test_a_full_disk_is_told_as_such_and_nothing_is_half_made(tmp_path: Path) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    with registry._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull, match="no space left"):
        registry.create_topics([a_topic(f"topic.{number}") for number in range(2_000)])
    assert registry.topics() == []
    with registry._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")

    assert len(registry.create_topics([a_topic()])) == 1
    registry.close()


def test_a_locked_file_is_unavailable_which_may_be_retried(tmp_path: Path) -> None:
    registry = SqlRegistry.open_sqlite(tmp_path / "r.db")
    with registry._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 10")
    raw = sqlite3.connect(tmp_path / "r.db", isolation_level=None)
    raw.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        registry.create_topics([a_topic()])
    raw.execute("ROLLBACK")
    raw.close()

    assert len(registry.create_topics([a_topic()])) == 1
    registry.close()
