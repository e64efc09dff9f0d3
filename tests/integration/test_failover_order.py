"""R1, R6, Q12: order keys hold while masters die, stand still and hand over, under load."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import ternmq
from ternmq.core.slots import SLOTS
from tests.integration.ordered_load import ordered_load
from tests.integration.processes import NodeFactory, tern
from tests.integration.replicated import Pair, add_group, make_pair
from tests.integration.test_slots import settled
from tests.integration.verifiable import balanced

CONTINUE = {"TERN_REPLICA_LOST": "continue"}


async def agreeing(url: str) -> None:
    """The ledgers add up, and nothing is left to do."""
    async with ternmq.connect(url, app="test") as mq, asyncio.timeout(20):
        while True:
            lines = await mq.admin.ledger(topic="orders")
            if lines and not any(line.ready + line.in_flight for line in lines):
                break
            await asyncio.sleep(0.1)
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
