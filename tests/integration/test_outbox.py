"""Outbox and inbox end to end: real node, real databases, kill -9 at every step (Q9, Q16)."""

import asyncio
import subprocess
import sys
import time

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ternmq
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox
from tests.integration.databases import TestDatabase
from tests.integration.processes import Node, clean_environment, tern, wait_until
from tests.integration.shop import (
    BILL_POINTS,
    COMMITTED_FROM,
    SELL_POINTS,
    SETTINGS,
)


def shop(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.shop", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )


def prepare(engine: Engine) -> None:
    Outbox(engine).create_tables()
    Inbox(engine).create_tables()
    counter = "SERIAL" if engine.dialect.name == "postgresql" else "INTEGER"
    if engine.dialect.name in ("mysql", "mariadb"):
        counter = "INTEGER AUTO_INCREMENT"
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))
        connection.execute(
            text(f"CREATE TABLE invoices (n {counter} PRIMARY KEY, order_id INTEGER)")
        )


def numbers(engine: Engine, query: str) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.execute(text(query)).scalars())


def sweep(url: str, engine: Engine) -> Outbox:
    """What a relay does: send everything that is left."""
    with ternmq.sync.connect(url, app="relay") as mq:
        relay = Outbox(engine, mq, settings=SETTINGS)
        with relay:
            wait_until(
                lambda: not numbers(engine, "SELECT id FROM tern_outbox"),
                "an empty outbox",
                seconds=30,
            )
    return relay


def stored(url: str, topic: str) -> list[int]:
    with ternmq.sync.connect(url, app="check") as mq:
        try:
            return [int(message.body) for message in mq.read(topic, start="earliest")]
        except ternmq.TopicNotFound:
            return []


ONE_NOW_ALL_LATER = pytest.mark.parametrize(
    "database",
    ["postgresql", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("sqlite", "mariadb"))],
    indirect=True,
)


@ONE_NOW_ALL_LATER
def test_the_application_is_killed_at_every_step_of_the_outbox(
    database: TestDatabase, node: Node
) -> None:
    """Q9: messages are exactly the committed orders, whatever step the process died in."""
    engine = database.engine()
    prepare(engine)
    dying = [
        shop("sell", node.url, database.url, "order.paid", point, str(number))
        for number, point in enumerate(SELL_POINTS)
    ]
    for process in dying:
        _, err = process.communicate(timeout=60)
        assert process.returncode == -9, err.decode()

    relay = sweep(node.url, engine)

    committed = list(range(COMMITTED_FROM, len(SELL_POINTS)))
    assert numbers(engine, "SELECT id FROM orders") == committed
    assert sorted(stored(node.url, "order.paid")) == committed
    assert relay.counts.duplicates == 2  # Sent, and dead before the delete was committed.
    engine.dispose()


@ONE_NOW_ALL_LATER
def test_the_consumer_is_killed_at_every_step_of_the_inbox(
    database: TestDatabase, node: Node
) -> None:
    """Q16: one invoice for each message, whatever step the process died in."""
    engine = database.engine()
    prepare(engine)
    with ternmq.sync.connect(node.url, app="shop") as mq:
        mq.send_many("order.paid", [b"%d" % number for number in range(20)])
    dying = [
        shop("bill", node.url, database.url, "order.paid", point) for point in BILL_POINTS[:-1]
    ]
    for process in dying:
        _, err = process.communicate(timeout=60)
        assert process.returncode == -9, err.decode()
    last = shop("bill", node.url, database.url, "order.paid", "never")
    try:
        wait_until(lambda: ledger(node.url)["acked"] == 20, "twenty acks", seconds=60)
    finally:
        last.terminate()
        last.communicate(timeout=30)

    assert numbers(engine, "SELECT order_id FROM invoices") == list(range(20))
    assert len(numbers(engine, "SELECT COUNT(*) FROM tern_inbox")) == 1
    engine.dispose()


def ledger(url: str) -> dict[str, int]:
    lines = tern("ledger", "order.paid", "billing", "--json", url=url, code=None)
    return {"acked": 0} if lines.code else dict(lines.json()[0])


async def test_everything_async(database: TestDatabase, shared_node: Node) -> None:
    """One loop, no threads: async engine, async session, async client, async handler."""
    topic = f"async.{database.kind}"
    engine = create_async_engine(database.async_url)
    app = ternmq.App(shared_node.url, app="shop")
    inbox = Inbox(engine)
    await inbox.create_tables()
    seen: list[bytes] = []

    @app.subscriber(topic, group="g", inbox=inbox, start="earliest")
    async def handle(message: ternmq.Message, session: AsyncSession) -> None:
        seen.append(message.body)

    async with ternmq.connect(shared_node.url, app="shop", codec="json") as mq:
        await mq.admin.create_topic(topic)
        async with app, Outbox(engine, mq, codec="json") as outbox:
            await outbox.create_tables()
            async with AsyncSession(engine) as session, session.begin():
                await outbox.send(session, topic, {"order": 1})
            await outbox.aflush()
            deadline = time.monotonic() + 20
            while not seen:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
    assert seen == [b'{"order":1}']
    await engine.dispose()


@ONE_NOW_ALL_LATER
def test_the_relay_sends_what_is_left_and_operators_see_the_rest(
    database: TestDatabase, shared_node: Node
) -> None:
    """`tern outbox relay|list|show|retry|delete|move|create`."""
    topic, db = f"cli.{database.kind}", ("--database", database.url)
    tern("outbox", "create", *db)
    engine = database.engine()
    outbox = Outbox(engine)
    with Session(engine) as session, session.begin():
        outbox.send(session, topic, b"1", key="o-1", properties={"n": 2**70})
        outbox.send(session, topic, b"later", delay=3600)
        outbox.send(session, topic, b"2")
    with engine.begin() as connection:  # A group that is gone, and content nobody can read.
        connection.execute(text("UPDATE tern_outbox SET broker_group = 'gone' WHERE id = 3"))
        connection.execute(
            text(
                "INSERT INTO tern_outbox (message_id, topic, content, created_ms, ready_ms)"
                " VALUES ('00000000000000000000000001', 'x', :content, 1, 1)"
            ),
            {"content": b"?"},
        )

    ran = tern("outbox", "relay", "--once", *db, "--json", url=shared_node.url).json()
    assert ran["sent"] == 1
    assert ran["parked"] == 1
    assert stored(shared_node.url, topic) == [1]
    listed = tern("outbox", "list", *db, "--json").json()
    assert [row["row"] for row in listed] == [2, 3, 4]
    assert listed[0]["state"].startswith("waits until")
    assert "'gone'" in listed[1]["error"]
    assert (listed[2]["state"], listed[2]["attempts"]) == ("parked", 1)
    assert "parked" in tern("outbox", "list", *db, "--parked").out
    assert tern("outbox", "show", "3", *db).json()["body"] == "2"
    assert "cannot be read" in tern("outbox", "show", "4", *db).json()["problem"]

    assert "1 rows due" in tern("outbox", "retry", "4", *db).out
    assert tern("outbox", "delete", "4", *db, "--yes", "--json").json()["deleted"] == 1
    moved = tern("outbox", "move", "--from", "gone", "--to", "main", *db, "--yes", "--json").json()
    assert moved["moved"] == 1
    assert tern("outbox", "relay", "--once", *db, "--json", url=shared_node.url).json()["sent"] == 1
    assert stored(shared_node.url, topic) == [1, 2]
    assert "no row 77" in tern("outbox", "show", "77", *db, code=2).err
    engine.dispose()


def test_a_wrong_database_is_said_in_one_line() -> None:
    assert "is no database URL" in tern("outbox", "list", "--database", "nonsense", code=2).err
    assert "error: the database refused" in tern(
        "outbox", "list", "--database", "sqlite:///nowhere/at/all.db", code=1
    ).err  # fmt: skip
    assert "CREATE TABLE tern_outbox" in tern("outbox", "sql", "postgresql").out
    assert "CREATE TABLE tern_inbox" in tern("outbox", "sql", "mariadb", "--inbox").out
    assert "none of postgresql" in tern("outbox", "sql", "oracle", code=2).err
