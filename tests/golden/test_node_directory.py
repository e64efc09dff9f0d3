"""The data directory of a 0.1 node, killed in the middle of its life, as today's node opens it.

`node_v0_1.tar.xz` was made by `make_node.py` with the released 0.1 (466c921) and is never made
anew: everything that is in it is read here, and goes on.
"""

import asyncio
import tarfile
from collections import Counter
from pathlib import Path

import pytest

import ternmq
from ternmq import CancelResult
from ternmq.testing import node
from ternmq.testing.clock import TurnedClock
from tests.waiting import until

from .make_node import NOW_MS

RELEASED = Path(__file__).parent / "node_v0_1.tar.xz"


@pytest.fixture
def released(tmp_path: Path) -> Path:
    with tarfile.open(RELEASED) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    return tmp_path / "data"


async def bodies(mq: ternmq.Client, topic: str) -> list[str]:
    return [message.body.decode() async for message in mq.read(topic, start="earliest")]


async def test_everything_of_a_released_node_is_read_and_goes_on(released: Path) -> None:
    clock = TurnedClock(NOW_MS)
    async with (
        node(data_dir=released, clock=clock, session_grace_ms=1000) as url,
        ternmq.connect(url, app="shop") as mq,
    ):
        await check_messages(mq)
        await check_group(mq, clock)
        await check_transactions(mq)
        await check_order(mq)
        await check_delayed(mq, clock)
        new = await mq.send("orders", b"of today")
        assert new.sequence == 21
    async with node(data_dir=released, clock=clock) as url, ternmq.connect(url) as mq:
        assert (await bodies(mq, "orders"))[-1] == "of today", "and after another start"


async def check_messages(mq: ternmq.Client) -> None:
    expected = [*(f"order {at}" for at in range(20)), "after the checkpoint"]
    assert await bodies(mq, "orders") == expected
    assert [body[300:] for body in await bodies(mq, "bulk")] == [str(at) for at in range(200)]
    [found] = await mq.find("orders", key="k7")
    assert (found.message.tag, found.message.properties) == ("odd", {"amount": 7, "city": "Bern"})
    [last] = await mq.find("orders", key="last")
    assert last.message.body == b"after the checkpoint"
    names = {topic.name for topic in await mq.admin.topics()}
    assert names == {"orders", "bulk", "keyed", "later", "paid"}, "the deleted one stays so"


async def check_group(mq: ternmq.Client, clock: TurnedClock) -> None:
    """Acked stays acked; the retry comes when it is due; the dead letter is there."""
    assert await mq.admin.open_dead_letters("billing") == [(0, 1)]
    [dead] = [each async for each in mq.read("%dead.billing", start="earliest")]
    assert dead.body == b"order 11"
    assert "no such customer" in str(dead.properties)
    clock.turn(3700)
    seen: list[str] = []
    async with asyncio.timeout(20), mq.consumer("orders", group="billing") as messages:
        while len(seen) < 10:
            message = await anext(messages)
            seen.append(message.body.decode())
            await message.ack()
    expected = ["order 10", *(f"order {at}" for at in range(12, 20)), "after the checkpoint"]
    assert sorted(seen) == sorted(expected)


async def check_transactions(mq: ternmq.Client) -> None:
    assert await bodies(mq, "paid") == ["committed"]
    ending = await mq.commit_detached("open-one")
    assert ending.state == "committed"
    assert await bodies(mq, "paid") == ["committed", "committed by a later release"]


async def check_order(mq: ternmq.Client) -> None:
    seen: dict[str | None, list[str]] = {}
    async with (
        asyncio.timeout(20),
        mq.consumer("keyed", group="ordered", start="earliest", ordered=True) as messages,
    ):
        for _ in range(6):
            message = await anext(messages)
            seen.setdefault(message.order_key, []).append(message.body.decode())
            await message.ack()
    assert seen == {"o0": ["0", "2", "4"], "o1": ["1", "3", "5"]}


async def check_delayed(mq: ternmq.Client, clock: TurnedClock) -> None:
    rows = await mq.admin.delays.rows(topic="later", limit=100)
    assert Counter(row.state for row in rows)["pending"] >= 4
    expected = ["in 1 hours", "moved to 3 hours", "after the checkpoint"]
    clock.turn(4 * 3600)
    await until(lambda: has(mq, expected), "what is due by now", seconds=20)
    last = next(row for row in await mq.admin.delays.rows(topic="later", limit=100) if is_last(row))
    assert await mq.admin.delays.change("cancel", last) is CancelResult.CANCELLED
    clock.turn(26 * 3600)
    await until(lambda: has(mq, [*expected, "in 30 hours"]), "the one of tomorrow", seconds=20)


def is_last(row: object) -> bool:
    return getattr(row, "due_at_ms", 0) == NOW_MS + 200 * 3_600_000


async def has(mq: ternmq.Client, expected: list[str]) -> bool:
    return sorted(await bodies(mq, "later")) == sorted(expected)
