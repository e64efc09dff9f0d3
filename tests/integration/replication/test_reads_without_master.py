"""R19: reading goes on from a replica while the master is dead and nobody may take over."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.numbers import Command
from tests.integration.broker_pair import GROUP, make_pair
from tests.integration.processes import NodeFactory, tern
from tests.waiting import until

BODIES = [b"%d" % number for number in range(100)]


async def test_reads_and_broadcasts_go_on_from_a_replica_while_nobody_leads(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R19: all that was safe; positions are the readers' own, so nothing of a group changes."""
    settings = {"TERN_FAILOVER": "false"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    position = tmp_path / "position"
    position.write_text(json.dumps({"topic": "orders", "sequences": {GROUP: 0}}))
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send_many("orders", BODIES)
        master = await asyncio.to_thread(pair.master)
        read = [message.body async for message in mq.read("orders", from_="replica")]
        assert read == BODIES, "and so the replica knows that it is safe"
        master.kill()

        read = [message.body async for message in mq.read("orders", from_="replica")]
        assert read == BODIES
        await until(lambda: not mq.broker_groups(), "it is known that nobody leads")
        read = [message.body async for message in mq.read("orders", from_="replica", start=90)]
        assert read == BODIES[90:]
        with pytest.raises(ternmq.Unavailable):
            [message async for message in mq.read("orders")]
        browsed = await asyncio.to_thread(tern, "browse", "orders", "--replica", url=pair.url)
        assert "99" in browsed.out
        of_one = ["browse", "orders", "--replica", "--broker-group", GROUP, "--json"]
        browsed = await asyncio.to_thread(tern, *of_one, url=pair.url)
        assert [line["body"] for line in browsed.json_lines()] == [str(n) for n in range(80, 100)]

        async with mq.broadcast("orders", position=position, from_="replica") as every:
            messages = aiter(every)
            assert [(await anext(messages)).body for _ in BODIES] == BODIES
            await asyncio.to_thread(master.start)
            await until(mq.broker_groups, "its master is back")
            await mq.send("orders", b"new")
            assert (await anext(messages)).body == b"new"
        async with mq.broadcast("orders", from_="replica"):
            pass


async def test_what_a_group_has_not_acked_is_read_from_a_replica_while_nobody_leads(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R19: without leases, so the group gets the same messages when it is led again."""
    settings = {"TERN_FAILOVER": "false"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send_many("orders", BODIES)
        master = await asyncio.to_thread(pair.master)
        async with mq.consumer("orders", group="billing", prefetch=20) as consumer:
            taken = [await anext(consumer) for _ in range(20)]
            for message in [*taken[:10], *taken[15:]]:
                await message.ack()
        left = [*BODIES[10:15], *BODIES[20:]]

        async def read(**options: Any) -> list[bytes]:
            unsettled = mq.read("orders", group="billing", **options)
            return [message.body async for message in unsettled]

        assert await read() == left
        await until(lambda: settled_at_replica(mq), "that the replica knows what is safe")
        master.kill()
        await until(lambda: not mq.broker_groups(), "it is known that nobody leads")

        assert await read(from_="replica") == left
        assert await read(from_="replica", filter="TRUE", tag="*") == left
        with pytest.raises(ternmq.GroupNotFound):
            [m async for m in mq.read("orders", group="nobody", from_="replica")]
        [first] = [m async for m in mq.read("orders", group="billing", from_="replica", end=11)]
        with pytest.raises(ternmq.BadRequest, match="nothing to ack"):
            first.ack()
        await asyncio.to_thread(master.start)
        async with mq.consumer("orders", group="billing") as consumer:
            again = sorted([(await anext(consumer)).body for _ in left])
        assert again == sorted(left)


async def settled_at_replica(mq: ternmq.Client) -> bool:
    seek = Seek(topic="orders", start=ternmq.Start(), group="billing")
    sought = await mq.cluster.ask(mq.cluster.reader(GROUP), Command.SEEK, seek, Sought)
    return (sought.sequence, sought.settled) == (10, [(15, 20)])
