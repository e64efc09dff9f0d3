"""Brokers that are away, stopped or refuse, and what becomes of messages for later (D12, Q8)."""

import asyncio
import os
import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pytest

import ternmq
from ternmq import CancelResult
from tests.integration.delay.test_delays import arrived, known, pending, settled
from tests.integration.processes import NodeFactory, tern
from tests.integration.turned_clock import SharedClock
from tests.waiting import until, wait_until

HOUR_S = 3600


async def test_brokers_down_for_hours_then_everything_oldest_first_and_once(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """The ancestor never looked at more than two hours again. Five hours without a broker, and the
    delay server dies in between; a cancel works all the time; what is due now does not wait."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(arguments=["--no-delay"], prefix=clock.prefix)
    server = node_factory.delay_server(node, prefix=clock.prefix)
    random, start_ms = Random(1), int(clock.now() * 1000)
    dues = [start_ms + 60_000 + random.randrange(5 * HOUR_S * 1000) for _ in range(2_000)]
    async with ternmq.connect(node.url) as mq:
        for first in range(0, len(dues), 500):
            rows = [ternmq.Outgoing(body=b"%d" % at, due_at_ms=at) for at in dues[first:][:500]]
            assert not (await mq.send_many("orders", rows)).failures
    node.kill()
    clock.turn(3 * HOUR_S)
    server.kill()
    clock.turn(2 * HOUR_S + 120)
    node.start()
    server.start()
    async with ternmq.connect(node.url) as mq:
        await known(mq, "later")
        await mq.send("now", b"now", delay=0.001)
        await arrived(mq, "now", 1)
        bodies = [int(body) for body in await arrived(mq, "orders", 2_000, 40)]
        assert Counter(bodies) == Counter(dues)
        assert all(later > earlier - 1_100 for earlier, later in pairwise(bodies))
        await settled(mq, "orders", (2_000, 0, 2_000, 0))


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_an_intent_waits_for_its_group_for_days_and_others_take_the_rest(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """Two broker groups, one of them stopped in the middle: only what was decided for it waits. It
    wakes up after three days and two deaths of the delay server, and has each message once."""
    clock = SharedClock(tmp_path / "clock")
    one = node_factory(arguments=["--no-delay"])
    two = node_factory.broker_server(one.url, "two", start=False)
    two.prefix = clock.prefix
    two.start()
    server = node_factory.delay_server(one, prefix=clock.prefix)
    topics = [f"t{number}" for number in range(12)]
    async with ternmq.connect(one.url) as mq:
        await known(mq, "later")
        for topic in topics:
            await mq.send_many(topic, [b"%d" % at for at in range(50)], delay=60)
        clock.turn(61)
        await both_take_messages(mq)
        os.kill(two.pid, signal.SIGSTOP)
        for topic in topics:
            await mq.send_many(topic, [b"%d" % at for at in range(50, 100)], delay=60)
        clock.turn(61)
        async with asyncio.timeout(60):
            states = {"pending"}
            while "pending" in states:
                states = {row.state for row in await mq.admin.delays.rows(limit=1_000)}
        for _ in range(2):
            server.kill()
            clock.turn(36 * HOUR_S)
            server.start()
            await known(mq, "later")
            await mq.send("later", b"goes on", delay=0.001)

        async def went_on() -> bool:
            return not (await pending(mq, "later"))[1] and await waiting(mq) < 12 * 50

        await until(went_on, seconds=80)
        rows = await mq.admin.delays.rows(limit=1_000)
        assert {row.state for row in rows} == {"dispatching"}, "decided for the group that sleeps"
        os.kill(two.pid, signal.SIGCONT)
        await until(lambda: nothing_waits(mq), seconds=60)
        for topic in topics:
            bodies = Counter([message.body async for message in mq.read(topic)])
            assert bodies == Counter(b"%d" % at for at in range(100)), topic


async def waiting(mq: ternmq.Client) -> int:
    return sum(line.pending for line in await mq.admin.delays.ledger())


async def nothing_waits(mq: ternmq.Client) -> bool:
    return await waiting(mq) == 0


async def both_take_messages(mq: ternmq.Client) -> None:
    """Delayed messages go to either group."""

    async def came() -> bool:
        await mq.send("both", b"", delay=0.001)
        groups = {message.broker_group async for message in mq.read("both")}
        return len(groups) == 2 and await nothing_waits(mq)

    await until(came, seconds=40, ignoring=ternmq.TopicNotFound)


async def test_a_paused_topic_rests_can_be_cancelled_and_goes_on(node_factory: NodeFactory) -> None:
    """A refusal is not a loss: nothing is decided about rows that no broker takes."""
    node = node_factory()
    async with ternmq.connect(node.url) as mq:
        due = datetime.now(UTC) + timedelta(seconds=0.5)
        sent = [await mq.send("orders", b"%d" % at, at=due) for at in range(10)]
        await mq.admin.set_topic("orders", paused=True)
        await mq.send("other", b"x", at=due)
        await arrived(mq, "other", 1)
        wait_until(lambda: "refuses delayed messages" in node.stderr_text(), "a refusal")
        results = {await mq.cancel(receipt) for receipt in sent[:5]}
        assert results <= {CancelResult.CANCELLED, CancelResult.ALREADY_DISPATCHED}
        cancelled = (await pending(mq, "orders"))[3]
        node.kill()
        node.start()
        await mq.admin.set_topic("orders", paused=False)
        bodies = await arrived(mq, "orders", 10 - cancelled, 40)
        assert sorted(bodies)[-5:] == [str(at) for at in range(5, 10)]
        await settled(mq, "orders", (10, 0, 10 - cancelled, cancelled))


MOMENTS = [
    datetime(2027, 3, 28, 3, 0, tzinfo=ZoneInfo("Europe/Berlin")),  # 02:00 to 03:00 is no hour.
    datetime(2027, 10, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
    datetime(2027, 10, 31, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),  # The second one.
    datetime(2027, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC),
    datetime(2028, 2, 29, 12, 0, tzinfo=ZoneInfo("Asia/Kathmandu")),
    datetime(2028, 4, 2, 2, 0, tzinfo=ZoneInfo("Australia/Lord_Howe")),  # Half an hour back.
]


async def test_daylight_saving_leap_days_and_set_clocks_move_nothing(
    tmp_path: Path, node_factory: NodeFactory
) -> None:
    """In a node that lives in Berlin: never early, once, in hours named by UTC. A leap second is a
    clock that shows a second twice. Jumps are counted and shown."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(prefix=clock.prefix, environment={"TZ": "Europe/Berlin"})
    async with ternmq.connect(node.url) as mq:
        receipts = [await mq.send("t", str(at).encode(), at=at) for at in MOMENTS]
        for number, (moment, receipt) in enumerate(zip(MOMENTS, receipts, strict=True)):
            due_ms = int(moment.timestamp() * 1000)
            assert receipt.due_at_ms == due_ms
            clock.turn(moment.timestamp() - clock.now() - 3)
            assert len(await arrived(mq, "t", number)) == number, "early"
            if number == 3:
                clock.jump(-1)
            name = f"{due_ms - due_ms % 3_600_000:017d}.log"
            assert (node.data_dir / "delay" / "schedule" / name).exists()
            clock.turn(4)
            assert len(await arrived(mq, "t", number + 1)) == number + 1
        for number, seconds in enumerate((HOUR_S, -HOUR_S, -86_400, 86_400), 1):
            receipt = await mq.send("t", b"later", delay=2 * HOUR_S)
            clock.jump(seconds)
            await mq.send("jumps", str(seconds).encode(), delay=0.1)
            assert len(await arrived(mq, "jumps", number)) == number, "no stall, none twice"
            if seconds == 86_400:
                assert len(await arrived(mq, "t", 7)) == 7
                assert await mq.cancel(receipt) is CancelResult.ALREADY_DISPATCHED
            else:
                assert await mq.cancel(receipt) is CancelResult.CANCELLED
        await settled(mq, "t", (10, 0, 7, 3))
        (status,) = await mq.admin.delays.status()
        assert 4 <= status.clock_jumps <= 5  # The leap second may be under a second by then.
    assert "times since the start" in tern("doctor", url=node.url, code=None).out
    assert node.stderr_text().count("clock of this machine jumped") == status.clock_jumps
    assert time.time() < clock.now()
