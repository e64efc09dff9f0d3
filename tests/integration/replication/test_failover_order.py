"""R1, R6, Q12: order keys hold while masters die, stand still and hand over, under load."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ternmq
from ternmq.core.slots import SLOTS
from tests.integration.broker_pair import Pair, add_group, make_pair
from tests.integration.cluster.test_draining import begin
from tests.integration.cluster.test_slots import settled
from tests.integration.ordered_load import OrderedLoad, ordered_load
from tests.integration.processes import NodeFactory, tern
from tests.integration.verifiable_clients import balanced
from tests.waiting import until

CONTINUE = {"TERN_REPLICA_LOST": "continue"}


async def agreeing(url: str) -> None:
    """The ledgers add up, and nothing is left to do."""
    async with ternmq.connect(url, app="test") as mq:

        async def nothing_left() -> bool:
            lines = await mq.admin.ledger(topic="orders")
            return bool(lines) and not any(line.ready + line.in_flight for line in lines)

        await until(nothing_left)
        lines = await mq.admin.ledger(topic="orders")
        assert all(balanced(line) for line in lines)


def kill(pair: Pair) -> None:
    first = pair.master()
    first.kill()
    pair.wait_served(first)
    first.start()


def stand_still(pair: Pair) -> None:
    first = pair.master()
    os.kill(first.pid, signal.SIGSTOP)
    try:
        pair.wait_served(first)
    finally:
        os.kill(first.pid, signal.SIGCONT)


def hand_over(pair: Pair) -> None:
    first = pair.master()
    tern("broker", "handover", pair.group, url=pair.url)
    pair.wait_served(first)


def promote(pair: Pair) -> None:
    first = pair.master()
    tern("broker", "promote", pair.group, "--force", url=pair.url)
    pair.wait_served(first)


@pytest.mark.parametrize(
    "fault",
    [
        kill,
        pytest.param(stand_still, marks=pytest.mark.long),
        pytest.param(hand_over, marks=pytest.mark.long),
        pytest.param(promote, marks=pytest.mark.long),
    ],
)
async def test_each_key_stays_in_order_and_in_one_hand_when_the_master_changes(
    node_factory: NodeFactory, tmp_path: Path, fault: Callable[[Pair], None]
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=CONTINUE)
    async with ordered_load(pair.url, tmp_path) as load:
        for _ in range(1 if fault is kill else 3):
            await asyncio.to_thread(fault, pair)
            await load.more(200)
            await asyncio.to_thread(pair.wait_in_sync, 2)
        await load.finish()
        await agreeing(pair.url)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", [kill, stand_still, hand_over])
@pytest.mark.parametrize("whose", ["former", "next"])
async def test_slots_that_move_while_a_master_changes_keep_their_order_and_arrive(
    node_factory: NodeFactory, tmp_path: Path, fault: Callable[[Pair], None], whose: str
) -> None:
    """Of either group, at the beginning of the move and while rows are held back."""
    east = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=CONTINUE)
    west = await asyncio.to_thread(add_group, node_factory, east, "west", settings=CONTINUE)
    pairs = {"pair": east, "west": west}
    async with (
        ordered_load(east.url, tmp_path) as load,
        ternmq.connect(east.url, app="test") as mq,
    ):
        for to, former in (("west", "pair"), ("pair", "west")):
            victim = pairs[former if whose == "former" else to]
            harmed = asyncio.create_task(asyncio.to_thread(fault, victim))
            await mq.admin.move_slots(to, range(0, SLOTS, 2))
            await harmed
            await settled(mq)
            await load.more(100)
            await asyncio.to_thread(victim.wait_in_sync, 2)
        await load.finish()
        await agreeing(east.url)


@pytest.mark.long
async def test_a_promoted_master_gives_nobody_what_a_silent_consumer_may_be_working_on(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Design 5: until its lease has passed; other keys go on meanwhile."""
    settings = {**CONTINUE, "TERN_LEASE_MS": "15000"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    load = OrderedLoad(pair.url, tmp_path)
    try:
        async with ternmq.connect(pair.url, app="test") as mq:
            await mq.send("orders", b"held 0", order_key="held")
            red = load.consume("red", 1_000)
            await until(lambda: load.begun("red") == ["held"], "a message", seconds=30)
            os.kill(red, signal.SIGSTOP)
            first = await asyncio.to_thread(pair.master)
            first.kill()
            await asyncio.to_thread(pair.wait_served, first)
            served = time.monotonic()
            load.consume("blue")
            for key in ("held", "free"):
                await mq.send("orders", f"{key} 1".encode(), order_key=key)
            await until(lambda: load.begun("blue") == ["free"], "another key", seconds=14)
            await until(lambda: "held" in load.begun("blue"), "the key", seconds=40)
            assert time.monotonic() - served > 14
    finally:
        load.close()


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_a_drained_group_is_safe_to_stop_though_its_master_died_meanwhile(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    east = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=CONTINUE)
    west = await asyncio.to_thread(add_group, node_factory, east, "west", settings=CONTINUE)
    async with ordered_load(east.url, tmp_path) as load:
        draining = begin(east.url, tmp_path / "drain.err")
        await asyncio.to_thread(kill, west)
        out, _ = await asyncio.to_thread(draining.communicate, timeout=120)
        assert b'"safe_to_stop": true' in out, (tmp_path / "drain.err").read_text()
        for broker in west.brokers:
            broker.kill()
        await load.more(200)
        await load.finish()
