"""A retry storm on a real node: one group fails everything it holds, all at once.

Whatever the group does, another group gets all its messages while the failed ones wait, new
messages of the stormy group come before the failed ones, the broker's memory grows by a bounded
number of bytes per waiting row, and in the end the ledger is exact, also through kill -9.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ternmq
from tests.integration.processes import Node, NodeFactory

STEPS = 20  # So many moments for neighbouring rows: no two of them wait together.
ROW_BYTES_MAX = 300  # Of the broker's memory, per waiting row.
BESIDE_BYTES = 60 * 1024 * 1024  # What a node may grow by for other reasons.
GRACE = {"TERN_SESSION_GRACE_MS": "200"}


def resident(node: Node) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("a process without memory")


async def hold(mq: ternmq.Client, rows: int) -> list[tuple[Any, list[ternmq.Message]]]:
    """Consumers of the group `stormy` that hold all of `storm`; one holds half its prefetch."""
    holding = []
    for _ in range(4):
        consumer = await mq.consumer("storm", group="stormy", prefetch=rows // 2).start()
        held: list[ternmq.Message] = []
        async for message in consumer:
            held.append(message)
            if len(held) == rows // 4:
                break
        consumer.stop_pulling()
        holding.append((consumer, held))
    return holding


async def fail_all(mq: ternmq.Client, rows: int, after: float) -> None:
    holding = await hold(mq, rows)
    for _, held in holding:
        for number, message in enumerate(held):
            message.retry(after=after + number % STEPS * 0.02)
            if number % 1_000 == 0:
                await asyncio.sleep(0)
    for consumer, held in holding:
        held.clear()
        await consumer.close()


async def ledger(mq: ternmq.Client) -> Any:
    [line] = await mq.admin.ledger("storm", "stormy")
    parts = line.ready + line.in_flight + line.waiting_retry + line.acked
    assert line.total == parts + line.filtered + line.skipped + line.dead + line.expired
    return line


async def the_other_group_gets_its_own(mq: ternmq.Client, count: int) -> None:
    async with mq.consumer("calm", group="other") as consumer:
        for number in range(count):
            await mq.send("calm", b"%d" % number)
            message = await asyncio.wait_for(anext(aiter(consumer)), 30)
            assert message.body == b"%d" % number
            message.ack()


async def new_ones_come_first(mq: ternmq.Client, rows: int, count: int) -> None:
    """While the failed ones wait, new ones go through; when those are back, they share."""
    line = await ledger(mq)
    assert line.waiting_retry == rows
    await mq.send_many("storm", [b"new"] * count)
    async with mq.consumer("storm", group="stormy", prefetch=100) as consumer:
        for _ in range(count):
            message = await asyncio.wait_for(anext(aiter(consumer)), 30)
            assert message.body == b"new"
            message.ack()


async def everything_comes_again(mq: ternmq.Client, rows: int, count: int) -> None:
    """All failed ones, each once; and new ones are not behind all of them. Acks of the last moment
    before a kill may be lost: those rows come again too."""
    line = await ledger(mq)
    left = line.total - line.acked + count
    await mq.admin.retry_group("storm", "stormy")
    await mq.send_many("storm", [b"late"] * count)
    handled: set[int] = set()
    late = 0
    async with mq.consumer("storm", group="stormy") as consumer:
        async for message in consumer:
            assert message.sequence not in handled
            handled.add(message.sequence)
            late += message.body == b"late"
            if late == count and message.body == b"late":
                assert len(handled) < rows // 2, "new ones came after most of the failed ones"
            message.ack()
            if len(handled) == left:
                break
    assert set(range(rows)) <= handled
    line = await ledger(mq)
    assert (line.ready, line.in_flight, line.waiting_retry) == (0, 0, 0)
    assert line.acked == line.total


async def storm(node: Node, rows: int) -> None:
    async with ternmq.connect(node.url, app="test") as mq:
        for _ in range(rows // 2_000):
            await mq.send_many("storm", [b"x"] * 2_000)
        before = resident(node)
        failing = asyncio.create_task(fail_all(mq, rows, after=3_600))
        async with ternmq.connect(node.url, app="test") as other:
            await the_other_group_gets_its_own(other, 100)
        await failing
        assert resident(node) - before < rows * ROW_BYTES_MAX + BESIDE_BYTES
        await the_other_group_gets_its_own(mq, 50)
        await new_ones_come_first(mq, rows, 500)
    node.kill()
    node.start()
    async with ternmq.connect(node.url, app="test") as mq:
        assert (await ledger(mq)).waiting_retry == rows, "what waits is known after kill -9"
        await everything_comes_again(mq, rows, 500)


async def test_a_storm_of_retries_disturbs_nobody(node_factory: NodeFactory) -> None:
    """R5, J3, design 5: others go on, new messages are not starved, memory is bounded."""
    await storm(node_factory(environment=GRACE), 10_000)


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_a_storm_of_a_million_retries_disturbs_nobody(node_factory: NodeFactory) -> None:
    """R5, J3: the whole million."""
    await storm(node_factory(environment=GRACE), 1_000_000)
