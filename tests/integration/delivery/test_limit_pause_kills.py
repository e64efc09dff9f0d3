"""kill -9 of consumers and of the broker in the middle of limits, pauses, confirmations, priorities
and batch handlers. One node for all; each test has a topic of its own and leaves the node running.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ternmq
from tests.integration.delivery.test_order_filter_kills import balanced, settled
from tests.integration.processes import Node, NodeFactory, clean_environment
from tests.waiting import until, wait_until

HOLD = """
import os, sys, time, ternmq
with ternmq.sync.connect(os.environ["TERN_URL"], app="holder") as mq:
    with mq.consumer(sys.argv[1], group="g") as consumer:
        print("ready", flush=True)
        for message in consumer:
            print(message.sequence, flush=True)
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Leases of the dead are free soon."""
    factory = NodeFactory(tmp_path_factory.mktemp("kills"))
    try:
        yield factory(arguments=["--no-delay"], environment={"TERN_SESSION_GRACE_MS": "200"})
    finally:
        factory.finish()


@contextmanager
def holder(node: Node, topic: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A consumer process that takes what it can get and settles nothing."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, topic],
            stdout=out,
            env=clean_environment({"TERN_URL": node.url}),
        )
    try:
        wait_until(lambda: "ready" in log.read_text(), "the consumer", seconds=30)
        yield process
    finally:
        process.kill()
        process.wait(10)


def holds(log: Path) -> int:
    return len(log.read_text().splitlines()) - 1


def reborn(node: Node) -> None:
    node.kill()
    node.start()


async def test_what_a_killed_consumer_held_makes_room_below_the_bound(
    broker: Node, tmp_path: Path
) -> None:
    """J13: `in_flight_max` counts what is held, not what was; and the broker's death changes
    neither the bound nor what is settled."""
    log = tmp_path / "log"
    async with ternmq.connect(broker.url, app="shop") as mq:
        await mq.admin.create_group("bounded", "g", ternmq.Start())
        await mq.admin.set_group("bounded", "g", in_flight_max=10)
        await mq.send_many("bounded", [b"x"] * 60)
        with holder(broker, "bounded", log) as process:
            wait_until(lambda: holds(log) == 10, "as many as may be")
            os.kill(process.pid, signal.SIGKILL)
        async with mq.consumer("bounded", group="g") as consumer, asyncio.timeout(30):
            for number in range(60):
                message = await anext(consumer)
                if number % 20 == 10:
                    assert (await balanced(mq, "bounded", "g")).in_flight <= 10
                await message.ack()
                if number == 30:
                    await asyncio.to_thread(reborn, broker)
                    break
        async with mq.consumer("bounded", group="g") as consumer:
            draining = asyncio.create_task(drain(consumer))
            line = await settled(mq, "bounded", "g")
            draining.cancel()
    assert (line.acked, line.total) == (60, 60)


async def drain(consumer: ternmq.Consumer) -> None:
    async for message in consumer:
        message.ack()


async def test_a_paused_consumer_and_a_paused_group_through_kills(
    broker: Node, tmp_path: Path
) -> None:
    """J13: a pause of one consumer dies with it; a pause of the group outlives the broker."""
    log = tmp_path / "log"
    async with ternmq.connect(broker.url, app="shop") as mq:
        await mq.admin.create_group("paused", "g", ternmq.Start())
        with holder(broker, "paused", log) as process:
            [group] = await mq.admin.groups("paused", "g")
            await mq.admin.pause_consumer("paused", "g", group.members[0].session)
            await mq.send_many("paused", [b"x"] * 20)
            await asyncio.to_thread(reborn, broker)
            os.kill(process.pid, signal.SIGKILL)
        assert holds(log) == 0, "still paused after the broker came back"
        await mq.admin.set_group("paused", "g", paused=True)
        await asyncio.to_thread(reborn, broker)
        async with mq.consumer("paused", group="g") as consumer:
            draining = asyncio.create_task(drain(consumer))
            assert (await balanced(mq, "paused", "g")).ready == 20
            await mq.admin.set_group("paused", "g", paused=False)
            line = await settled(mq, "paused", "g")
            draining.cancel()
    assert (line.acked, line.total) == (20, 20)


async def test_a_confirmation_waits_for_the_heir_of_a_killed_consumer(
    broker: Node, tmp_path: Path
) -> None:
    """D13: taken by a consumer that dies, confirmed when another one acked."""
    log = tmp_path / "log"
    async with ternmq.connect(broker.url, app="shop") as mq:
        await mq.admin.create_group("confirmed", "g", ternmq.Start())
        with holder(broker, "confirmed", log) as process:
            sending = asyncio.create_task(
                mq.send_many("confirmed", [b"x"] * 3, confirm_group="g", timeout=60)
            )
            await asyncio.to_thread(wait_until, lambda: holds(log) == 3, "the hand-out")
            os.kill(process.pid, signal.SIGKILL)
        assert not sending.done()
        async with mq.consumer("confirmed", group="g") as consumer, asyncio.timeout(30):
            for _ in range(3):
                (await anext(consumer)).ack()
            assert len(await sending) == 3
        assert (await balanced(mq, "confirmed", "g")).acked == 3


async def test_priorities_come_first_after_kills_too(broker: Node, tmp_path: Path) -> None:
    """Higher priorities first, also those that a dead consumer held or a dead broker knew of."""
    log = tmp_path / "log"
    async with ternmq.connect(broker.url, app="shop") as mq:
        await mq.admin.create_group("ranked", "g", ternmq.Start())
        await mq.admin.set_group("ranked", "g", priority=True, in_flight_max=30)
        rows = [ternmq.Outgoing(body=b"%d" % n, priority=n % 10) for n in range(100)]
        await mq.send_many("ranked", rows)
        with holder(broker, "ranked", log) as process:
            await asyncio.to_thread(wait_until, lambda: holds(log) == 30, "the highest")
            os.kill(process.pid, signal.SIGKILL)
        lives: list[list[ternmq.Message]] = [[], []]

        async def nobody_holds_any() -> bool:
            return not (await balanced(mq, "ranked", "g")).in_flight

        await until(nobody_holds_any, "those of the dead one", seconds=30)
        for taken in lives:
            async with mq.consumer("ranked", group="g", prefetch=2) as one, asyncio.timeout(30):
                for _ in range(50):
                    taken.append(await anext(one))
                    await taken[-1].ack()
            if taken is lives[0]:
                await mq.send("beside", b"takes the acks along to the disk")
                await asyncio.to_thread(reborn, broker)
    first = [message.priority for message in lives[0]]
    assert first == [9] * 10 + [8] * 10 + [7] * 10 + [6] * 10 + [5] * 10
    second = [message.priority for message in lives[1]]
    assert second == [4] * 10 + [3] * 10 + [2] * 10 + [1] * 10 + [0] * 10


async def test_a_broker_killed_inside_a_batch_handler_loses_nothing(broker: Node) -> None:
    """D11: the handler goes on, its acks are told to the next life of the broker."""
    app = ternmq.App(broker.url, app="shop")
    handled: list[int] = []
    began = asyncio.Event()
    killed = asyncio.Event()

    @app.subscriber("batches", group="g", batch=True, batch_size=5, start="earliest")
    async def bill(batch: ternmq.MessageBatch) -> None:
        began.set()
        await killed.wait()
        handled.extend(message.sequence for message in batch)

    async with ternmq.connect(broker.url, app="shop") as mq:
        await mq.send_many("batches", [b"x"] * 30)
        async with app:
            await asyncio.wait_for(began.wait(), 30)
            await asyncio.to_thread(reborn, broker)
            killed.set()
            line = await settled(mq, "batches", "g")
    assert (line.acked, line.total) == (30, 30)
    assert set(handled) == set(range(30))
