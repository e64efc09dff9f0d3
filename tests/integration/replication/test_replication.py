"""Two brokers of one group as processes: what is acknowledged is on both, and outlives either."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import GROUP, accounted, bodies, make_pair, more
from tests.integration.processes import BrokerServer, NodeFactory, tern
from tests.integration.verifiable_clients import verifying, whole_topic
from tests.waiting import until


def refusing(broker: BrokerServer) -> int:
    """How often it has begun to refuse messages."""
    return broker.stderr_text().count("no messages are taken")


def is_replica(mq: ternmq.Client, address: str) -> bool:
    routes = mq.cluster.routes()
    return any((route.role, route.address) == ("replica", address) for route in routes)


NUMBERS = [str(number) for number in range(100)]


@pytest.mark.long
async def test_what_was_sent_to_a_master_is_read_from_its_successor(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send_many("orders", [number.encode() for number in NUMBERS])
        first = await asyncio.to_thread(pair.master)
        first.kill()
        await asyncio.to_thread(pair.wait_served, first)

        assert await bodies(mq, "orders") == NUMBERS


async def test_without_its_replica_a_master_takes_no_messages_until_it_is_back(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    async with ternmq.connect(pair.url, app="test") as mq:
        receipt = await mq.send("orders", b"both")
        assert receipt.status is ternmq.SendStatus.REPLICATED, "R3"
        master = await asyncio.to_thread(pair.master)
        replica = await asyncio.to_thread(pair.replica)
        before = refusing(master)
        replica.kill()
        opened = asyncio.create_task(mq.send("orders", b"open"))
        await until(lambda: refusing(master) > before, "read-only")
        with pytest.raises(ternmq.ReadOnly, match='replica_lost = "continue"'):
            await mq.send("other", b"refused")
        assert [m.body async for m in mq.read("orders", from_="replica")] == [b"both"]
        assert not opened.done(), "what may be on one disk only is not answered"
        assert await bodies(mq, "orders") == ["both"]
        await asyncio.to_thread(replica.start)

        await opened
        assert await bodies(mq, "orders") == ["both", "open"]
        address = f"127.0.0.1:{replica.port + 1}"
        await until(lambda: is_replica(mq, address), "a route to the replica")
        read = [message.body async for message in mq.read("orders", from_="replica")]
        assert read == [b"both", b"open"]
        connection = mq.cluster.reader(GROUP).connection
        assert connection is not None
        assert connection.address == address
        await mq.send("other", b"taken")


@pytest.mark.long
async def test_with_continue_a_master_goes_on_alone(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_REPLICA_LOST": "continue"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"both")
        replica = await asyncio.to_thread(pair.replica)
        replica.kill()

        await mq.send("orders", b"alone")
        standing = await asyncio.to_thread(pair.standing)
        assert standing.in_sync == [standing.master]
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(pair.wait_in_sync, 2)
        first = await asyncio.to_thread(pair.broker_of, standing.master)
        first.kill()
        await asyncio.to_thread(pair.wait_served, first)
        assert await bodies(mq, "orders") == ["both", "alone"]


async def test_kill_9_of_the_master_under_load_loses_nothing(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_REPLICA_LOST": "continue"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    with verifying(pair.url, "load", tmp_path / "load") as load:
        load.produce("a")
        load.consume("b", "g")
        await until(lambda: load.at_work, "load", seconds=30)
        for _ in range(2):
            first = await asyncio.to_thread(pair.master)
            await more(load)
            first.kill()
            await asyncio.to_thread(pair.wait_served, first)
            await asyncio.to_thread(first.start)
            await asyncio.to_thread(pair.wait_in_sync, 2)
        await more(load)
        load.alive()
        await accounted(pair, load)


async def test_a_master_that_stood_still_acknowledges_nothing_its_successor_lacks(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_REPLICA_LOST": "continue"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    with verifying(pair.url, "load", tmp_path / "load") as load:
        load.produce("a")
        await more(load)
        first = await asyncio.to_thread(pair.master)
        os.kill(first.pid, signal.SIGSTOP)
        await asyncio.to_thread(pair.wait_served, first)
        await more(load)
        os.kill(first.pid, signal.SIGCONT)
        await asyncio.to_thread(pair.wait_in_sync, 2)
        await more(load)
        await asyncio.to_thread(load.end, "produce")
        async with ternmq.connect(pair.url, app="test") as mq:
            load.check_stored(await whole_topic(mq, "load"))


async def test_a_planned_change_of_master_costs_no_message_and_no_error(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path)
    with verifying(pair.url, "load", tmp_path / "load") as load:
        load.produce("a")
        load.consume("b", "g")
        await more(load)
        first = await asyncio.to_thread(pair.master)
        await asyncio.to_thread(tern, "broker", "handover", GROUP, url=pair.url)
        await asyncio.to_thread(pair.wait_served, first)
        await more(load)
        load.alive()
        await asyncio.to_thread(load.end, "produce")
        async with ternmq.connect(pair.url, app="test") as mq:
            found = await whole_topic(mq, "load")
            load.check_stored(found)
            await until(lambda: len(load.got()) >= len(found), "all consumed", seconds=30)


async def test_a_server_without_data_can_not_lead(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, count=1)
    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"kept")
    [first] = pair.brokers
    first.kill()
    empty = await asyncio.to_thread(node_factory.broker_server, pair.url, GROUP)
    refused = await asyncio.to_thread(tern, "broker", "promote", GROUP, url=pair.url, code=None)
    await asyncio.to_thread(first.start)

    assert refused.code != 0
    assert "in sync" in refused.err
    assert (await asyncio.to_thread(pair.master)) is first
    async with ternmq.connect(pair.url, app="test") as mq:
        assert await bodies(mq, "orders") == ["kept"]
    pair.brokers.append(empty)
    await asyncio.to_thread(pair.wait_in_sync, 2)
