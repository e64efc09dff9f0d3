"""A broker that stored what no reader reads: every pull is answered, every group goes on.

The node is the real one, in this process, so that its door can be that of an older release while
the poison comes in (finding C3).
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.testing import node
from ternmq.wire.numbers import Command
from tests.integration.poisoned_batches import POISON, broken_chunk, open_door, poisoned

GROUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ordered": {"ordered": True},
    "tagged": {"tag": "vip"},
    "filtered": {"filter": "priority >= 0 OR key = 'x' OR amount > 1"},
    "keyed": {"filter": "key <> 'nobody'"},
}


async def fill(mq: ternmq.Client, topic: str) -> int:
    """Good, bad, good; returns how many rows are good."""
    await mq.send(topic, b"first", key="k", tag="vip", order_key="o", properties={"amount": 5})
    connection = await mq.cluster.broker("main").get()
    for what in POISON:
        with open_door():
            await connection.call(Command.PUBLISH, poisoned(what, topic))
        await mq.send(topic, what.encode(), key="k", tag="vip", order_key="o", priority=3)
    return 1 + len(POISON)


async def consumed(mq: ternmq.Client, group: str, good: int, **options: Any) -> set[bytes]:
    """All good bodies; bad rows are rejected as they come."""
    found: set[bytes] = set()
    async with asyncio.timeout(20), mq.consumer("t", group=group, **options) as consumer:
        while len(found) < good:
            message = await anext(consumer)
            if message.body in (b"a", b"b"):
                message.reject("bad")
            else:
                found.add(message.body)
                await message.ack()
        await consumer.flush()
    return found


@pytest.mark.parametrize("again", [False, True], ids=["at once", "after a restart"])
async def test_every_group_goes_on(tmp_path: Path, again: bool) -> None:
    good = {b"first", *(what.encode() for what in POISON)}
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="t") as mq:
        await mq.admin.create_topic("t")
        for group in (*GROUPS, "ranked"):
            await mq.admin.create_group("t", group, ternmq.Start())
        await mq.admin.set_group("t", "ranked", priority=True)
        await fill(mq, "t")
        if not again:
            await check_groups(mq, good)
    if again:
        async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="t") as mq:
            await check_groups(mq, good)


async def check_groups(mq: ternmq.Client, good: set[bytes]) -> None:
    for group, options in GROUPS.items():
        assert await consumed(mq, group, len(good), **options) == good, group
    assert await consumed(mq, "ranked", len(good)) == good
    letters = [message async for message in mq.read("%dead.plain")]
    assert sorted(letter.body for letter in letters) == sorted([b"a", b"b"] * len(POISON))
    damaged = [letter for letter in letters if "%damaged" in letter.properties]
    assert len(damaged) >= len(POISON)


async def test_rows_of_such_a_batch_are_read_one_by_one(tmp_path: Path) -> None:
    """A pull of one row wants the batch cut; what cannot be cut comes whole."""
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="t") as mq:
        await mq.admin.create_topic("t")
        await mq.admin.create_group("t", "g", ternmq.Start())
        good = await fill(mq, "t")
        assert len(await consumed(mq, "g", good, prefetch=1)) == good
        bodies = [message.body async for message in mq.read("t")]
        assert len(bodies) == good + 2 * len(POISON)


async def test_a_body_that_does_not_decompress_is_a_dead_letter_and_ends_no_loop(
    tmp_path: Path,
) -> None:
    """The door does not decompress, so it lets this in; a consumer's plain loop goes on."""
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="t") as mq:
        await mq.send("t", b"first")
        connection = await mq.cluster.broker("main").get()
        await connection.call(Command.PUBLISH, broken_chunk("t"))
        await mq.send("t", b"last")
        found = []
        async with asyncio.timeout(20), mq.consumer("t", group="g") as consumer:
            async for message in consumer:
                found.append(message.body)
                await message.ack()
                if message.body == b"last":
                    break
            await consumer.flush()
        letters = [message async for message in mq.read("%dead.g")]
        [line] = await mq.admin.ledger("t", "g")

    assert found == [b"first", b"last"]
    assert [letter.body for letter in letters] == [b"", b""]
    assert all("cannot be read" in str(one.properties["%reason"]) for one in letters)
    assert (line.total, line.acked, line.dead) == (4, 2, 2)
