"""Outbox and inbox end to end: real node, real databases, kill -9 at every step (Q9, Q16)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ternmq
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox
from tests.integration.databases import Servers, TestDatabase, make_database
from tests.integration.outbox.shop import (
    BILL_POINTS,
    COMMITTED_FROM,
    SELL_POINTS,
    SETTINGS,
)
from tests.integration.processes import COMMAND, Node, clean_environment, tern
from tests.waiting import until, wait_until


def shop(*arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.integration.outbox.shop", *arguments],
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
            await until(lambda: seen)
    assert seen == [b'{"order":1}']
    await engine.dispose()


def test_the_relay_sends_what_is_left(servers: Servers, tmp_path: Path, shared_node: Node) -> None:
    """`tern outbox relay` as its own process, until it is told to stop; no group, no harm."""
    database = make_database("mariadb", servers, tmp_path)
    engine = database.engine()
    outbox = Outbox(engine)
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        for number in range(3):
            outbox.send(session, "cli.relay", b"%d" % number)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tern_outbox SET broker_group = 'gone' WHERE id = 2"))

    with (tmp_path / "out").open("w+b") as out:
        relay = subprocess.Popen(
            [*COMMAND, "outbox", "relay", "--database", database.url, "--json", "--poll", "0.1"],
            stdout=out,
            env=clean_environment({"TERN_URL": shared_node.url}),
        )
        try:
            rows = "SELECT id FROM tern_outbox"
            wait_until(lambda: numbers(engine, rows) == [2], "the relay", seconds=30)
            text_of = "SELECT error FROM tern_outbox"
            wait_until(lambda: "gone" in str(first(engine, text_of)), "a reason", seconds=30)
        finally:
            relay.terminate()
            assert relay.wait(30) == 0
        out.seek(0)
        ready, *counts = out.read().decode().splitlines()
    assert ready == "ready outbox relay"
    assert json.loads("".join(counts))["sent"] == 2
    assert stored(shared_node.url, "cli.relay") == [0, 2]

    arguments = ("--from", "gone", "--to", "main", "--database", database.url, "--yes")
    tern("outbox", "move", *arguments)
    ran = tern("outbox", "relay", "--once", "-d", database.url, "--json", url=shared_node.url)
    assert ran.json()["sent"] == 1
    assert sorted(stored(shared_node.url, "cli.relay")) == [0, 1, 2]
    engine.dispose()


def first(engine: Engine, query: str) -> object:
    with engine.connect() as connection:
        return connection.execute(text(query)).scalar()
