"""R19: reading goes on from a replica while the master is dead and nobody may take over."""

import asyncio
import json
from pathlib import Path

import pytest

import ternmq
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
