"""replica_ack = "memory" and "none": what a master waits for, and what is said about the rest."""

import asyncio
import json
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import bodies, make_pair
from tests.integration.processes import NodeFactory, tern
from tests.waiting import until


@pytest.mark.long
async def test_a_replica_that_answered_from_memory_and_crashed_leaves_the_set_until_it_has_all(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(
        make_pair, node_factory, tmp_path, settings={"TERN_REPLICA_ACK": "memory"}
    )
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"one")
        replica = await asyncio.to_thread(pair.replica)
        before = (await asyncio.to_thread(pair.standing)).version
        replica.kill()
        replica.environment = {**(replica.environment or {}), "TERN_REPLICA_ACK": "disk"}
        await asyncio.to_thread(replica.start)
        await until(lambda: "left the in-sync set" in replica.stderr_text(), "it left")
        await asyncio.to_thread(pair.wait_in_sync, 2)
        assert (await asyncio.to_thread(pair.standing)).version >= before + 2
        await mq.send("orders", b"two")

        replica.stop()
        await asyncio.to_thread(replica.start)
        await mq.send("orders", b"three")
        assert replica.stderr_text().count("left the in-sync set") == 1, "that was a clean stop"


@pytest.mark.long
async def test_without_waiting_a_master_acknowledges_what_its_replica_lacks(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Then the master dies, and what the successor lacks is counted where it is."""
    settings = {"TERN_REPLICA_ACK": "none", "TERN_REPLICA_TIMEOUT_MS": "20000"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    await asyncio.to_thread(pair.wait, "said in the registry", lambda it: not it.waits)
    master = await asyncio.to_thread(pair.master)
    replica = await asyncio.to_thread(pair.replica)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"both")
        await until(lambda: _lag(pair.url) == 0, "the replica has it")
        assert "near" in tern("broker", "list", url=pair.url).out
        replica.kill()
        for number in range(3):
            await mq.send("orders", str(number).encode())  # Acknowledged all the same.
        master.kill()
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(pair.wait_served, master)

        assert await bodies(mq, "orders") == ["both"]
        await mq.send("orders", b"new")
        await asyncio.to_thread(master.start)
        await until(lambda: "lacks messages" in master.stderr_text(), "counted")
        line = next(x for x in master.stderr_text().splitlines() if "lacks messages" in x)
        assert "rows=3" in line, line
        assert "'first': 1" in line, line
        assert "acknowledged=perhaps" in line, line
        await asyncio.to_thread(pair.wait_in_sync, 2)


@pytest.mark.long
async def test_what_a_former_master_has_for_itself_is_kept_aside(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Its checkpoint covers it, so it cannot be cut off."""
    settings = {
        "TERN_REPLICA_ACK": "none",
        "TERN_REPLICA_TIMEOUT_MS": "20000",
        "TERN_CHECKPOINT_INTERVAL_MS": "100",
    }
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    await asyncio.to_thread(pair.wait, "said in the registry", lambda it: not it.waits)
    master = await asyncio.to_thread(pair.master)
    replica = await asyncio.to_thread(pair.replica)
    checkpoint = master.data_dir / "broker" / "checkpoint"
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"both")
        await until(lambda: _lag(pair.url) == 0, "the replica has it")
        replica.kill()
        await mq.send("orders", b"lost")
        before = checkpoint.read_bytes()
        await mq.send("orders", b"lost too")
        await until(lambda: checkpoint.read_bytes() != before, "a checkpoint")
        master.kill()
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(pair.wait_served, master)
        await mq.send("orders", b"new")
        await asyncio.to_thread(master.start)
        await asyncio.to_thread(pair.wait_in_sync, 2)

    assert "lacks messages that are here" in master.stderr_text()
    assert [path.name for path in master.data_dir.iterdir() if ".aside-" in path.name]


def _lag(url: str) -> int:
    lines: list[dict[str, int]] = json.loads(tern("broker", "list", "--json", url=url).out)
    return sum(line["lag"] for line in lines) if len(lines) == 2 else -1
