"""Chaos L2: an older copy of the registry is put back after order-key slots moved. What the brokers
know of the placement stands, and order keys are sent as before."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import ternmq
from ternmq.core.slots import SLOTS
from ternmq.wire.messages.order_keys import Placement
from tests.integration.cluster.test_slots import owners, settled
from tests.integration.processes import NodeFactory
from tests.waiting import until

KEYS = [f"key-{at}" for at in range(20)]


def copy(source: Path, target: Path) -> None:
    for end in ("", "-wal", "-shm"):
        target.with_name(target.name + end).unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def send_all(url: str, text: str) -> None:
    """By a client that knows nothing from before."""
    async with ternmq.connect(url, app="shop", delivery_timeout=15) as mq:
        for key in KEYS:
            await mq.send("orders", f"{key} {text}".encode(), order_key=key)


async def taken(url: str, count: int) -> list[str]:
    found: list[str] = []
    async with (
        asyncio.timeout(30),
        ternmq.connect(url, app="shop") as mq,
        mq.consumer("orders", group="g", start="earliest", ordered=True) as messages,
    ):
        async for message in messages:
            found.append(message.body.decode())
            message.ack()
            if len(found) == count:
                return found
    return found


@pytest.mark.parametrize("restarted", [False, True], ids=["they run", "they start again"])
async def test_order_keys_go_where_they_went_after_an_older_registry_is_put_back(
    restarted: bool, node_factory: NodeFactory, tmp_path: Path
) -> None:
    registry, old = tmp_path / "registry.db", tmp_path / "old.db"
    meta = node_factory.meta_server(f"sqlite:///{registry}")
    brokers = [node_factory.broker_server(meta.url, name) for name in ("east", "west")]
    await send_all(meta.url, "first")
    await asyncio.to_thread(copy, registry, old)
    async with ternmq.connect(meta.url) as mq:
        await mq.admin.move_slots("west", range(SLOTS))
        await until(lambda: moved(mq), "all slots are on west", seconds=30)
        assert len(await taken(meta.url, len(KEYS))) == len(KEYS)
        await settled(mq)
        known = await mq.admin.placement()
    await send_all(meta.url, "second")
    meta.kill()
    if restarted:
        for broker in brokers:
            broker.stop()
    await asyncio.to_thread(copy, old, registry)
    await asyncio.to_thread(meta.start)
    if restarted:
        for broker in brokers:
            await asyncio.to_thread(broker.start)

    async with ternmq.connect(meta.url) as mq:
        await until(lambda: is_now(mq, known), "the placement of before", seconds=15)
    await send_all(meta.url, "third")
    rows = await taken(meta.url, 2 * len(KEYS))
    for key in KEYS:
        mine = [row.split()[1] for row in rows if row.split()[0] == key]
        assert mine == ["second", "third"], key


async def is_now(mq: ternmq.Client, placement: Placement) -> bool:
    return await mq.admin.placement() == placement


async def moved(mq: ternmq.Client) -> bool:
    placement = await mq.admin.placement()
    return owners(placement) == {"west"}
