"""Tables of outbox and inbox on real databases: SQL files, Alembic, names, schemas, shards (Q9)."""

from pathlib import Path

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, create_engine, event, inspect, select, text
from sqlalchemy.orm import Session

from ternmq.inbox import Inbox, make_inbox_table
from ternmq.inbox.migrations import create_inbox, drop_inbox, inbox_sql
from ternmq.outbox import Outbox
from ternmq.outbox.migrations import create_outbox, drop_outbox, outbox_sql
from tests.integration.databases import Servers, TestDatabase, make_database
from tests.unit.inbox.test_inbox import message
from tests.unit.outbox.fake_client import FakeMq


def use(engine: Engine, outbox: Outbox, inbox: Inbox, mq: FakeMq) -> None:
    """One message out and one in, twice."""
    stored = len(mq.bodies)
    with Session(engine) as session, session.begin():
        outbox.send(session, "t", b"\x00body\xff", key="k")
    outbox.flush()
    assert mq.bodies[stored:] == [b"\x00body\xff"]
    with engine.connect() as connection:
        assert not connection.execute(select(outbox.table.c.id)).all()
    done: list[str] = []
    guarded = inbox.guard(lambda one, session: done.append(one.id), "g")
    for _ in range(2):
        guarded(message("m1"))
    assert done == ["m1"]


def test_the_plain_sql_works(database: TestDatabase, engine: Engine, mq: FakeMq) -> None:
    with engine.begin() as connection:
        for statement in (outbox_sql(database.kind) + inbox_sql(database.kind)).split(";"):
            if statement.strip():
                connection.execute(text(statement))
    use(engine, Outbox(engine, mq), Inbox(engine), mq)


def test_alembic_goes_up_and_down(engine: Engine, mq: FakeMq) -> None:
    """Under names of the application's own, twice."""
    for _ in range(2):
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            create_outbox(op, "messages_out")
            create_inbox(op, "messages_in")
        outbox, inbox = Outbox(engine, mq, table="messages_out"), Inbox(engine, table="messages_in")
        use(engine, outbox, inbox, mq)
        with engine.begin() as connection:
            op = Operations(MigrationContext.configure(connection))
            drop_outbox(op, "messages_out")
            drop_inbox(op, "messages_in")
            assert not {"messages_out", "messages_in"} & set(inspect(connection).get_table_names())


def test_the_tables_may_be_in_a_schema(
    database: TestDatabase, engine: Engine, mq: FakeMq, tmp_path: Path
) -> None:
    """Made by `create_tables`, and by Alembic for the inbox."""
    if database.kind == "sqlite":
        path = tmp_path / "other.db"
        event.listen(engine, "connect", lambda one, _: one.execute(f"ATTACH '{path}' AS app"))
        schema = "app"
    else:
        schema = f"app_{engine.url.database}"
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA {schema}"))
    outbox = Outbox(engine, mq, table="out", schema=schema)
    outbox.create_tables()
    with engine.begin() as connection:
        create_inbox(Operations(MigrationContext.configure(connection)), "seen", schema)
    use(engine, outbox, Inbox(engine, table=make_inbox_table("seen", schema)), mq)
    with engine.connect() as connection:
        assert inspect(connection).has_table("out", schema=schema)
        assert not inspect(connection).has_table("out")


def test_shards_are_several_engines(servers: Servers, tmp_path: Path, mq: FakeMq) -> None:
    """Databases of three kinds behind one outbox: sent at once, and swept, from each."""
    engines = [
        create_engine(make_database(kind, servers, tmp_path).url)
        for kind in ("sqlite", "postgresql", "mariadb")
    ]
    outbox = Outbox(engines, mq)
    outbox.create_tables()
    for number, engine in enumerate(engines):
        with Session(engine) as session, session.begin():
            outbox.send(session, "t", b"%d" % number)
    outbox.flush()
    assert sorted(mq.bodies) == [b"0", b"1", b"2"]

    without_client = Outbox(engines)
    for number, engine in enumerate(engines):
        with Session(engine) as session, session.begin():
            without_client.send(session, "t", b"left %d" % number)
    for shard in outbox.relay.databases:
        mq.submit(lambda one, shard=shard: outbox.relay.sweep_once(one, shard)).result(20)
    assert sorted(mq.bodies[3:]) == [b"left 0", b"left 1", b"left 2"]
    for engine in engines:
        engine.dispose()
