"""The inbox in an app, with a real node and real databases: dead workers, restarts (Q16)."""

import asyncio
import gc
import threading
import time
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import ternmq
from ternmq.inbox import Inbox
from ternmq.inbox.records import InboxRecords
from tests.integration.databases import TestDatabase
from tests.integration.processes import Node, tern
from tests.unit.inbox.test_inbox import message
from tests.waiting import until

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_message_that_a_dead_worker_had_in_hand_is_not_given_up(
    database: TestDatabase, shared_node: Node
) -> None:
    """Plain mode: the group allows two attempts; waiting for the dead one's time costs one."""
    topic = "inbox.plain"
    engine = database.engine()
    inbox = Inbox(engine, session=False, working=300)
    inbox.create_tables()
    app = ternmq.App(shared_node.url, app="billing")
    done: list[str] = []

    @app.subscriber(
        topic, group="g", inbox=inbox, start="earliest", retry_after=0.01, attempts_max=2
    )
    def handle(message: ternmq.Message) -> None:
        done.append(message.id)

    async with ternmq.connect(shared_node.url, app="shop") as mq:
        receipt = await mq.send(topic, b"1")
        with engine.begin() as connection:
            now_ms = time.time_ns() // 1_000_000
            records = InboxRecords(inbox.table)
            records.take(connection, "g", receipt.id, now_ms=now_ms, until_ms=now_ms + 700)
        async with app:
            await until(lambda: done, seconds=60)
    [line] = tern("ledger", topic, "g", "--json", url=shared_node.url).json()
    assert (done, line["acked"], line["dead"]) == ([receipt.id], 1, 0)
    engine.dispose()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_a_message_that_its_handler_gives_back_is_not_recorded_as_handled(
    database: TestDatabase, shared_node: Node
) -> None:
    """Else it would come again, find its record and be acked without any effect; Q16."""
    topic = "inbox.given.back"
    engine = database.engine()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (kind TEXT, attempt INTEGER)"))
    async_engine = create_async_engine(database.async_url)
    inbox = Inbox(engine)
    inbox.create_tables()
    app = ternmq.App(shared_node.url, app="billing")
    insert = text("INSERT INTO effects VALUES (:kind, :attempt)")
    seen: dict[str, int] = {"thread": 0, "task": 0, "plain": 0, "rejected": 0}

    def judged(kind: str, message: ternmq.Message) -> dict[str, Any]:
        seen[kind] = message.attempt
        if kind == "rejected":
            message.reject("never")
        elif message.attempt == 1:
            message.retry(after=0.01)
        else:
            message.ack()  # Waits for the commit.
        return {"kind": kind, "attempt": message.attempt}

    options: dict[str, Any] = {"start": "earliest"}

    @app.subscriber(topic, group="thread", inbox=inbox, **options)
    def in_thread(message: ternmq.Message, session: Any) -> None:
        session.execute(insert, judged("thread", message))

    @app.subscriber(topic, group="task", inbox=Inbox(async_engine), **options)
    async def in_task(message: ternmq.Message, session: Any) -> None:
        await session.execute(insert, judged("task", message))

    @app.subscriber(topic, group="plain", inbox=Inbox(engine, session=False), **options)
    def plain(message: ternmq.Message) -> None:
        judged("plain", message)

    @app.subscriber(topic, group="rejected", inbox=inbox, **options)
    def rejected(message: ternmq.Message, session: Any) -> None:
        session.execute(insert, judged("rejected", message))

    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send(topic, b"1")
        async with app:
            await until(lambda: seen == {"thread": 2, "task": 2, "plain": 2, "rejected": 1})
    with engine.connect() as connection:
        effects = connection.execute(text("SELECT kind, attempt FROM effects ORDER BY kind")).all()
        recorded = connection.execute(text("SELECT group_name FROM tern_inbox ORDER BY 1"))
        assert [tuple(row) for row in effects] == [("task", 2), ("thread", 2)]
        assert list(recorded.scalars()) == ["plain", "task", "thread"]
    await async_engine.dispose()
    engine.dispose()


async def test_of_two_async_workers_one_works_and_one_waits(database: TestDatabase) -> None:
    """On one event loop: the second waits in the database for the first's commit, and skips."""
    engine = create_async_engine(database.async_url)
    inbox = Inbox(engine)
    await inbox.create_tables()
    inside, go_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def slow(message: Any, session: Any) -> None:
        inside.set()
        await go_on.wait()
        done.append("first")

    async def quick(message: Any, session: Any) -> None:
        done.append("second")

    first = asyncio.create_task(inbox.guard(slow, "g")(message("m")))
    await inside.wait()
    second = asyncio.create_task(inbox.guard(quick, "g")(message("m")))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(first, second)
    assert done == ["first"]
    await engine.dispose()


# asyncmy and SQLAlchemy leave dead connections to the garbage collector, which says so.
@pytest.mark.filterwarnings("ignore:.*garbage collector.*:sqlalchemy.exc.SAWarning")
@pytest.mark.filterwarnings("ignore:(?s).*asyncmy:pytest.PytestUnraisableExceptionWarning")
@SERVERS
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_database_that_restarts_under_the_handlers_leaves_each_effect_once(
    database: TestDatabase, shared_node: Node, is_async: bool
) -> None:
    """Pools have dead connections in them; handlers fail, messages come again, sums are exact."""
    topic, count = f"inbox.restart.{database.kind}.{is_async}", 400
    engine = database.engine()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (id INTEGER)"))
    async_engine = create_async_engine(database.async_url)
    inbox = Inbox(async_engine if is_async else engine)
    await inbox.create_tables()
    app = ternmq.App(shared_node.url, app="billing")
    handled = threading.Semaphore(0)
    insert = text("INSERT INTO effects VALUES (:id)")
    options: dict[str, Any] = {"concurrency": 4, "retry_after": 0.2, "attempts_max": 0}
    subscribe = app.subscriber(topic, group="g", inbox=inbox, start="earliest", **options)

    if is_async:

        @subscribe
        async def work(message: ternmq.Message, session: Any) -> None:
            await session.execute(insert, {"id": int(message.body)})
            handled.release()
    else:

        @subscribe
        def work_in_thread(message: ternmq.Message, session: Any) -> None:
            session.execute(insert, {"id": int(message.body)})
            handled.release()

    async with ternmq.connect(shared_node.url, app="shop") as mq:
        await mq.send_many(topic, [b"%d" % number for number in range(count)])
        async with app:
            for _ in range(50):
                await asyncio.to_thread(handled.acquire)
            assert database.server is not None
            await asyncio.to_thread(database.server.kill)
            await asyncio.to_thread(database.server.start)

            async def acked() -> bool:
                [line] = await mq.admin.ledger(topic, "g")
                return bool(line.acked == count)

            await until(acked, seconds=60)
    engine.dispose()  # Its pool has connections to the server that was killed.
    with engine.connect() as connection:
        effects = Counter(connection.execute(text("SELECT id FROM effects")).scalars())
    assert effects == dict.fromkeys(range(count), 1)
    await async_engine.dispose()
    engine.dispose()
    gc.collect()  # Here, where its complaints are expected.
