"""Outbox, delay and cancel: an order and its time-out in one transaction (F3 of the trials, Q9)."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import ternmq
from ternmq import CancelResult
from ternmq.core.ids import explicit_id_text
from ternmq.outbox import Outbox, RelaySettings
from tests.integration.databases import TestDatabase
from tests.integration.processes import Node
from tests.unit.outbox.fake_client import FakeMq
from tests.waiting import until, wait_until

CANCELLED, DISPATCHED = CancelResult.CANCELLED, CancelResult.ALREADY_DISPATCHED
UNKNOWN = CancelResult.UNKNOWN
NOBODY = "01M7FCD80ZA6JWJ00W00000000"


def send(outbox: Outbox, engine: Engine, delay: float | None = None) -> str:
    with Session(engine) as session, session.begin():
        return outbox.send(session, "order.close", b"o-1", delay=delay)


def cancel(outbox: Outbox, engine: Engine, id: str) -> CancelResult:
    with Session(engine) as session, session.begin():
        return outbox.cancel(session, id)


def left(outbox: Outbox, engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(outbox.table.c.id)).all())


def test_a_message_that_waits_is_taken_back_with_the_transaction(
    engine: Engine, mq: FakeMq
) -> None:
    """F3: if it commits, and only then."""
    outbox = Outbox(engine, mq)
    outbox.create_tables()
    id = send(outbox, engine, delay=3600)
    with Session(engine) as session:
        assert outbox.cancel(session, id) is CANCELLED
        session.rollback()
    assert left(outbox, engine) == 1
    with Session(engine) as session, session.begin():
        with session.begin_nested() as savepoint:
            assert outbox.cancel(session, id) is CANCELLED
            savepoint.rollback()
        assert outbox.cancel(session, id.lower()) is CANCELLED
    assert left(outbox, engine) == 0
    assert cancel(outbox, engine, id) is UNKNOWN
    assert cancel(outbox, engine, NOBODY) is UNKNOWN


def test_what_the_same_transaction_has_sent_is_taken_back(engine: Engine, mq: FakeMq) -> None:
    """Also one that would go out at once: nobody can have seen it."""
    outbox = Outbox(engine, mq)
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        id = outbox.send(session, "orders", b"never")
        outbox.send(session, "orders", b"kept")
        assert outbox.cancel(session, id) is CANCELLED
    outbox.flush()
    assert mq.bodies == [b"kept"]


def test_what_a_relay_has_begun_to_send_is_not_taken_back(engine: Engine, mq: FakeMq) -> None:
    """It may be stored: an answer was lost. One that was refused for good, and parked, is."""
    mq.refuse = lambda group, row: ternmq.SendUnknown("no answer")
    outbox = Outbox(engine, mq)
    outbox.create_tables()
    id = send(outbox, engine)
    outbox.flush()
    assert cancel(outbox, engine, id) is DISPATCHED
    mq.refuse = lambda group, row: ternmq.TooLarge("too large")
    parked = send(outbox, engine)
    outbox.flush()
    assert outbox.counts.parked == 1
    assert cancel(outbox, engine, parked) is CANCELLED


def test_of_rows_that_come_due_while_they_are_cancelled_each_is_sent_or_cancelled(
    engine: Engine, mq: FakeMq
) -> None:
    """F3: never both, never neither, whoever is faster."""
    outbox = Outbox(engine, mq, settings=RelaySettings(poll=0.005, rows_max=7))
    outbox.create_tables()
    with Session(engine) as session, session.begin():
        ids = [
            outbox.send(session, "order.close", b"x", delay=random.uniform(0, 0.5))
            for _ in range(150)
        ]
    with outbox, ThreadPoolExecutor(2) as threads:
        some = random.sample(ids, len(ids))
        results = list(threads.map(lambda id: cancel(outbox, engine, id), some))
        wait_until(lambda: left(outbox, engine) == 0)
    cancelled = {id for id, result in zip(some, results, strict=True) if result is CANCELLED}
    stored = [explicit_id_text(row.explicit_id or b"") for _, _, row in mq.stored]
    assert len(stored) == len(set(stored))
    assert cancelled.isdisjoint(stored)
    assert cancelled | set(stored) == set(ids)


def test_fresh_rows_without_a_broker_group_are_not_sent_once_they_are_cancelled(
    engine: Engine,
) -> None:
    """Nobody was there to choose from when they were inserted."""
    mq = FakeMq()
    mq.groups = []
    outbox = Outbox(engine, mq, settings=RelaySettings(poll=0.01))
    outbox.create_tables()
    id = send(outbox, engine)
    outbox.flush()
    assert cancel(outbox, engine, id) is CANCELLED
    kept = send(outbox, engine)
    mq.groups = ["main"]
    with outbox:
        wait_until(lambda: left(outbox, engine) == 0)
    assert [explicit_id_text(row.explicit_id or b"") for _, _, row in mq.stored] == [kept]
    mq.close()


def test_a_row_that_was_cancelled_after_it_was_read_is_found_out_before_it_is_sent(
    engine: Engine,
) -> None:
    """A relay decides on a broker group in a transaction: then it learns who is gone."""
    outbox = Outbox(engine)
    outbox.create_tables()
    gone, kept = send(outbox, engine), send(outbox, engine)
    rows = outbox.relay.rows
    with engine.connect() as connection:
        query = select(outbox.table.c.message_id, outbox.table.c.id)
        numbers = {row.message_id: row.id for row in connection.execute(query)}
        read = rows.listed(connection, chosen=[], count=10)
    assert cancel(outbox, engine, gone) is CANCELLED
    outbox.relay.groups = ("main",)
    with engine.begin() as connection:
        done = outbox.relay._sort(connection, read, {}, fresh=False)
        assert [row.message_id for row in done.ready] == [kept]
        assert rows.assign(connection, [numbers[gone]], "other") == {numbers[gone]}
        assert rows.assign(connection, [numbers[kept]], "other") == set()
    assert cancel(outbox, engine, kept) is DISPATCHED


# asyncmy and SQLAlchemy leave a connection to the garbage collector when the sweeper is stopped in
# the middle of a query, which says so.
@pytest.mark.filterwarnings("ignore:.*garbage collector.*:sqlalchemy.exc.SAWarning")
async def test_cancel_by_id_is_right_wherever_the_message_is(
    database: TestDatabase, shared_node: Node
) -> None:
    """F3: in the outbox, relayed, at the delay server, fired, nowhere."""
    engine = create_async_engine(database.async_url)
    topic = f"close.{database.kind}"
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        outbox = Outbox(engine, mq, settings=RelaySettings(poll=0.05))
        await outbox.create_tables()
        async with outbox:
            ids = []
            for delay in (3600, 3600, 0.05):
                async with AsyncSession(engine) as session, session.begin():
                    ids.append(await outbox.send(session, topic, b"o-1", delay=delay))
            async with AsyncSession(engine) as session, session.begin():
                assert await outbox.cancel(session, ids[0]) is CANCELLED
            assert await mq.cancel(ids[1]) is CANCELLED
            await until(lambda: outbox.counts.sent == 1)
            assert await mq.cancel(ids[2]) is DISPATCHED
            assert await mq.cancel(NOBODY) is UNKNOWN
            later = await mq.send(topic, b"o-2", delay=3600)
            assert await mq.cancel(later.id) is CANCELLED
            fired = await mq.send(topic, b"o-3", delay=3600)
            assert await mq.fire_now(fired) is CancelResult.FIRED
            await until(lambda: _count(mq, topic, 2))
            assert await mq.cancel(fired.id) is DISPATCHED
        bodies = [message.body async for message in mq.read(topic)]
    await engine.dispose()
    assert sorted(bodies) == [b"o-1", b"o-3"]


async def _count(mq: ternmq.Client, topic: str, count: int) -> bool:
    return len([message async for message in mq.read(topic)]) == count


def test_the_table_may_come_after_the_sweeper(engine: Engine, mq: FakeMq) -> None:
    """F11: one line that says what to do, and then it works."""
    with Outbox(engine, mq, settings=RelaySettings(poll=0.01)) as outbox:
        wait_until(lambda: outbox.relay._without_table)
        outbox.create_tables()
        with Session(engine) as session, session.begin():
            outbox.send(session, "orders", b"x", delay=0.01)
        wait_until(lambda: mq.bodies == [b"x"])


# asyncmy and SQLAlchemy leave a connection to the garbage collector when the sweeper is stopped in
# the middle of a query, which says so.
@pytest.mark.filterwarnings("ignore:.*garbage collector.*:sqlalchemy.exc.SAWarning")
async def test_an_outbox_takes_the_codec_of_its_client(
    database: TestDatabase, shared_node: Node
) -> None:
    """F11: plain, async, blocking; a codec of its own goes before."""
    engine = create_async_engine(database.async_url)
    async with ternmq.connect(shared_node.url, codec="json") as mq:
        outbox = Outbox(engine, mq)
        await outbox.create_tables()
        async with AsyncSession(engine) as session, session.begin():
            await outbox.send(session, f"codec.{database.kind}", {"order": 1})
            await outbox.send(session, f"codec.{database.kind}", b"raw", codec="bytes")
        await outbox.aflush()
        topic = f"codec.{database.kind}"
        assert [one.body async for one in mq.read(topic)] == [b'{"order":1}', b"raw"]
        with ternmq.sync.connect(shared_node.url, codec="msgpack") as blocking:
            made = await asyncio.to_thread(Outbox, engine, blocking)
            assert made.values("t", 5, {})["content"] != outbox.values("t", 5, {})["content"]
    with pytest.raises(ternmq.BadRequest, match=r"or give Outbox\(…, codec='json'\) or a client"):
        Outbox(engine).values("t", {"order": 1}, {})
    await engine.dispose()
