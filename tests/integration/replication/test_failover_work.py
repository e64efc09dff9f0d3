"""What producers, transactions and the pipeline were promised holds when the master changes."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import ternmq
from ternmq.batch.encoder import Origin, encode_bodies
from ternmq.core.ids import ProducerId
from ternmq.inbox import Inbox
from ternmq.outbox import Outbox
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.numbers import Command
from tests.integration.broker_pair import GROUP, accounted, make_pair, more
from tests.integration.processes import NodeFactory, tern
from tests.integration.replication.test_failover_order import CONTINUE, agreeing, kill
from tests.integration.verifiable_clients import verifying
from tests.waiting import until

BY_HAND = {**CONTINUE, "TERN_FAILOVER": "false"}
DEAD_AFTER_S = 1.5


async def publish(mq: ternmq.Client, batch: bytes) -> tuple[int, bool]:
    """Bytes as they are, until somebody answers: the first sequence, and whether it was known."""

    async def ask() -> bytearray:
        connection = await mq.cluster.broker(GROUP).get()
        return await connection.call(Command.PUBLISH, batch)

    answer = await until(ask, seconds=30, ignoring=ternmq.Unavailable)
    _, base, _, _, flags = PUBLISHED.unpack_from(answer)
    return base, bool(flags & PUBLISHED_DUPLICATE)


@pytest.mark.long
async def test_with_failover_off_a_person_promotes_and_a_repeated_publish_is_recognised(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=BY_HAND)
    origin = Origin(topic="orders", app="shop", producer=ProducerId(1, 2))
    batches = [
        bytes(encode_bodies([b"a", b"b"], origin=origin, first_sequence=first, born_at_ms=1))
        for first in (0, 2)
    ]
    async with ternmq.connect(pair.url, app="shop") as mq:
        assert [await publish(mq, batch) for batch in batches] == [(0, False), (2, False)]
        first = await asyncio.to_thread(pair.master)
        first.kill()
        await asyncio.sleep(2 * DEAD_AFTER_S)  # Long enough for a promotion, were there one.
        assert (await asyncio.to_thread(pair.master)) is first
        await asyncio.to_thread(tern, "broker", "promote", GROUP, url=pair.url)
        await asyncio.to_thread(pair.wait_served, first)

        assert [await publish(mq, batch) for batch in batches] == [(0, True), (2, True)]
        assert (await mq.send("orders", b"new")).sequence == 4


@pytest.mark.long
async def test_with_all_defaults_a_dead_master_is_replaced_within_15_seconds(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Producers and consumers carry on; the verifiable ones end at any exception."""
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=CONTINUE, meta={})
    with verifying(pair.url, "load", tmp_path / "load") as load:
        load.produce("a")
        load.consume("b", "g")
        await until(lambda: load.at_work, "load", seconds=30)
        await more(load)
        first = await asyncio.to_thread(pair.master)
        first.kill()
        began, before = time.monotonic(), load.count("stored")
        await until(lambda: load.count("stored") > before + 100, "stored", seconds=30)
        took = time.monotonic() - began
        await asyncio.to_thread(first.start)
        await asyncio.to_thread(pair.wait_in_sync, 2)
        load.alive()
        await accounted(pair, load)
    assert took < 15, took


@pytest.mark.long
async def test_transactions_end_as_they_should_across_changes_of_master(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R9: committed ones are there once and whole, others never; what is left open is asked for."""
    settings = {
        **CONTINUE,
        "TERN_HALF_FIRST_CHECK_MS": "500",
        "TERN_HALF_CHECK_INTERVAL_MS": "500",
        "TERN_HALF_CHECKS_MAX": "1000",
    }
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    wanted: dict[str, bool] = {}
    stop = asyncio.Event()
    async with ternmq.connect(pair.url, app="shop", delivery_timeout=120) as mq:
        # Asked while its rows are on their way (a change of master takes longer than the first
        # question), a transaction is nobody's to commit.
        words = {True: "commit", False: "rollback", None: "unknown"}
        mq.transaction_checker(lambda question: words[wanted.get(question.key or "")])

        async def work(worker: int) -> None:
            number = 0
            while not stop.is_set():
                name, how = f"{worker}.{number}", number % 4
                number += 1
                tx = mq.transaction()
                rows = [f"{name} {at}".encode() for at in range(3)]
                await tx.send_many("orders", rows, key=name, order_key=f"k{worker}")
                await tx.send("bills", f"{name} bill".encode(), key=name)
                wanted[name] = how in (0, 1)
                if how == 0:
                    await tx.commit()
                elif how == 2:
                    await tx.rollback()

        working = [asyncio.create_task(work(worker)) for worker in range(4)]
        for _ in range(2):
            await asyncio.sleep(1)
            await asyncio.to_thread(kill, pair)
            await asyncio.to_thread(pair.wait_in_sync, 2)
        await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*working)

        async def all_decided() -> bool:
            return (await mq.admin.halves()).total == 0

        await until(all_decided, seconds=60)
        found = Counter([m.body.decode() async for m in mq.read("orders")])
        bills = Counter([m.body.decode() async for m in mq.read("bills")])

    good = [name for name, commits in wanted.items() if commits]
    assert len(good) > 20
    assert found == Counter(f"{name} {at}" for name in good for at in range(3))
    assert bills == Counter(f"{name} bill" for name in good)


@pytest.mark.long
async def test_outbox_and_inbox_work_each_row_off_once_across_changes_of_master(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q9, Q16."""
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=CONTINUE)
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}", connect_args={"timeout": 60})
    with engine.begin() as connection:
        connection.execute(text("PRAGMA journal_mode=WAL"))
        connection.execute(text("CREATE TABLE effects (body TEXT)"))
    inbox = Inbox(engine)
    inbox.create_tables()
    Outbox(engine).create_tables()
    app = ternmq.App(pair.url, app="billing")

    @app.subscriber("orders", group="g", inbox=inbox, start="earliest", retry_after=0.1)
    def handle(message: ternmq.Message, session: Session) -> None:
        session.execute(text("INSERT INTO effects VALUES (:body)"), {"body": message.body.decode()})

    def effects() -> Counter[str]:
        with engine.connect() as connection:
            return Counter(connection.execute(text("SELECT body FROM effects")).scalars())

    async with ternmq.connect(pair.url, app="shop") as mq, Outbox(engine, mq) as outbox, app:
        sent = 0

        def sell() -> None:
            nonlocal sent
            with Session(engine) as session, session.begin():
                for _ in range(5):
                    outbox.send(session, "orders", b"%d" % sent, order_key=f"k{sent % 7}")
                    sent += 1

        for _ in range(2):
            for _ in range(20):
                await asyncio.to_thread(sell)
            killing = asyncio.create_task(asyncio.to_thread(kill, pair))
            while not killing.done():
                await asyncio.to_thread(sell)
                await asyncio.sleep(0.05)
            await killing
            await asyncio.to_thread(pair.wait_in_sync, 2)
        await until(lambda: len(effects()) >= sent, "every effect", seconds=90)
        stored = Counter([m.body.decode() async for m in mq.read("orders")])
        await agreeing(pair.url)
    assert stored == effects() == Counter(map(str, range(sent)))
    engine.dispose()
