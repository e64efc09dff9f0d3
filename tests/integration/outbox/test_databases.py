"""Outbox and inbox on real PostgreSQL, MariaDB and SQLite: claims, locks, restarts (Q9, Q16)."""

import asyncio
import gc
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from ternmq.core.errors import BadRequest
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox, RelaySettings
from tests.integration.databases import TestDatabase
from tests.unit.inbox.test_inbox import message
from tests.unit.outbox.fake_client import FakeMq
from tests.waiting import until, wait_until


def left(outbox: Outbox, engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(outbox.table.c.id)).all())


def test_commit_sends_and_rollback_does_not(engine: Engine, mq: FakeMq) -> None:
    """Q9."""
    outbox = Outbox(engine, mq)
    outbox.create_tables()
    with Session(engine) as session:
        outbox.send(session, "t", b"\x00kept\xff" * 20_000, properties={"amount": 12})
        session.commit()
        outbox.send(session, "t", b"gone")
        session.rollback()
    outbox.flush()

    assert mq.bodies == [b"\x00kept\xff" * 20_000]
    assert left(outbox, engine) == 0
    with Session(engine) as session, pytest.raises(BadRequest, match=r"create_tables\(\)"):
        Outbox(engine, table="missing").send(session, "t", b"")


async def test_async_drivers(database: TestDatabase, mq: FakeMq) -> None:
    engine = create_async_engine(database.async_url)
    outbox = Outbox(engine, mq)
    await outbox.create_tables()
    mq.submit = lambda job: asyncio.ensure_future(job(mq))  # type: ignore[method-assign]
    async with AsyncSession(engine) as session, session.begin():
        for number in range(10):
            await outbox.send(session, "t", b"%d" % number, order_key="k")
    await outbox.aflush()
    assert mq.bodies == [b"%d" % number for number in range(10)]
    async with AsyncSession(engine) as session:
        with pytest.raises(BadRequest, match=r"create_tables\(\)"):
            await Outbox(engine, table="missing").send(session, "t", b"")

    inbox = Inbox(engine)
    await inbox.create_tables()
    done: list[str] = []

    async def handler(message: Any, session: Any) -> None:
        done.append(message.id)

    guarded = inbox.guard(handler, "g")
    for id in ("a", "b", "a"):
        await guarded(message(id))
    assert done == ["a", "b"]
    assert await inbox.forget(older_than=-10) == 2
    await engine.dispose()


def test_two_relays_share_the_work_and_neither_does_the_other_s(engine: Engine, mq: FakeMq) -> None:
    """Row locks or claims: no row is sent twice though both sweep all the time."""
    writer = Outbox(engine)
    writer.create_tables()
    with Session(engine) as session, session.begin():
        for number in range(1_000):
            key = f"k{number % 7}" if number % 2 else None
            writer.send(session, "t", b"%d" % number, order_key=key)
    settings = RelaySettings(rows_max=50, poll=0.05)
    relays = [Outbox(engine, mq, settings=settings) for _ in range(2)]
    with relays[0], relays[1]:
        wait_until(lambda: left(writer, engine) == 0, "an empty outbox", seconds=60)

    assert Counter(mq.bodies) == {b"%d" % number: 1 for number in range(1_000)}
    assert sum(relay.counts.duplicates for relay in relays) == 0
    assert sum(relay.counts.sent for relay in relays) == 1_000
    for key in {row.order_key for _, _, row in mq.stored} - {None}:
        numbers = [int(row.body) for _, _, row in mq.stored if row.order_key == key]
        assert numbers == sorted(numbers)


def test_transactions_and_messages_agree(engine: Engine, mq: FakeMq) -> None:
    """Concurrent business transactions with random rollbacks: messages are the committed rows."""
    count, threads = (60, 2) if engine.dialect.name == "sqlite" else (200, 8)
    outbox = Outbox(engine, mq)
    outbox.create_tables()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER PRIMARY KEY)"))

    def business(number: int) -> None:
        chance = random.Random(number)
        with Session(engine) as session:
            session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": number})
            outbox.send(session, "order.paid", b"%d" % number)
            if chance.random() < 0.3:
                session.rollback()
            else:
                session.commit()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(business, range(count)))
    with outbox:
        wait_until(lambda: left(outbox, engine) == 0, "an empty outbox", seconds=30)

    with engine.connect() as connection:
        committed = connection.execute(text("SELECT id FROM orders")).scalars().all()
    assert sorted(map(int, mq.bodies)) == sorted(committed)
    assert 0 < len(committed) < count


def test_of_two_workers_one_works_and_one_waits(engine: Engine) -> None:
    """Q16: the second waits for the first's commit; after a rollback it does the work."""
    inbox = Inbox(engine)
    inbox.create_tables()
    for fails in (False, True):
        done: list[str] = []
        inside, go_on = threading.Event(), threading.Event()

        def slow(
            message: Any,
            session: Any,
            inside: Any = inside,
            go_on: Any = go_on,
            done: Any = done,
            fails: bool = fails,
        ) -> None:
            inside.set()
            assert go_on.wait(20)
            if fails:
                raise ValueError
            done.append("first")

        def quick(message: Any, session: Any, done: Any = done) -> None:
            done.append("second")

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(inbox.guard(slow, "g"), message(f"m{fails}"))
            assert inside.wait(20)
            second = pool.submit(inbox.guard(quick, "g"), message(f"m{fails}"))
            go_on.set()
            assert (first.exception() is not None) == fails
            assert second.exception() is None
        assert done == (["second"] if fails else ["first"])


@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
def test_a_database_that_restarts_in_the_middle_loses_and_doubles_nothing(
    database: TestDatabase, engine: Engine, mq: FakeMq
) -> None:
    """The server is killed while rows are inserted, sent and deleted."""
    outbox = Outbox(
        engine, mq, settings=RelaySettings(rows_max=20, poll=0.05, lease=2.0, grace=1.0)
    )
    outbox.create_tables()
    committed: list[int] = []
    unsure: list[int] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                with Session(engine) as session, session.begin():
                    outbox.send(session, "t", b"%d" % number)
                    unsure.append(number)
                committed.append(unsure.pop())
            except Exception:  # The driver's own words for "the server is gone".
                stop.wait(0.05)

    with outbox, ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        wait_until(lambda: len(committed) > 50, "fifty commits")
        assert database.server is not None
        database.server.kill()
        database.server.start()
        before = len(committed)
        wait_until(lambda: len(committed) > before + 50, "fifty commits more", seconds=30)
        stop.set()
        writing.result()
        wait_until(lambda: left(outbox, engine) == 0, "an empty outbox", seconds=60)

    sent = Counter(map(int, mq.bodies))
    assert set(committed) <= set(sent) <= set(committed) | set(unsure)
    assert max(sent.values()) == 1


# When its server is killed, asyncmy raises in the rollback too, and SQLAlchemy then leaves the dead
# connection to the garbage collector, which says so.
@pytest.mark.filterwarnings("ignore:.*garbage collector.*:sqlalchemy.exc.SAWarning")
@pytest.mark.filterwarnings("ignore:(?s).*asyncmy:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)
async def test_so_do_async_engines(database: TestDatabase, mq: FakeMq) -> None:
    """Everything on one event loop: sessions, immediate sends, sweeper."""
    engine = create_async_engine(database.async_url)
    settings = RelaySettings(rows_max=20, poll=0.05, lease=2.0, grace=1.0)
    mq.submit = lambda job: asyncio.ensure_future(job(mq))  # type: ignore[method-assign]
    outbox = Outbox(engine, mq, settings=settings)
    await outbox.create_tables()
    committed: set[int] = set()
    unsure: set[int] = set()
    stop = asyncio.Event()

    async def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            try:
                async with AsyncSession(engine) as session, session.begin():
                    await outbox.send(session, "t", b"%d" % number)
                    unsure.add(number)
                unsure.discard(number)
                committed.add(number)
            except Exception:  # The driver's own words for "the server is gone".
                await asyncio.sleep(0.05)

    outbox.start()
    writing = asyncio.create_task(write())
    await until(lambda: len(committed) > 50, seconds=60)
    assert database.server is not None
    await asyncio.to_thread(database.server.kill)
    await asyncio.to_thread(database.server.start)
    before = len(committed)
    await until(lambda: len(committed) > before + 50, seconds=60)
    stop.set()
    await writing
    await until(lambda: len(mq.bodies) >= len(committed), seconds=60)
    plain = database.engine()
    await until(lambda: left(outbox, plain) == 0, seconds=60)
    outbox.stop()
    await until(outbox._swept.is_set, seconds=60)

    sent = Counter(map(int, mq.bodies))
    assert committed <= set(sent) <= committed | unsure
    assert max(sent.values()) == 1
    plain.dispose()
    await engine.dispose()
    gc.collect()  # Here, where its complaints are expected.
