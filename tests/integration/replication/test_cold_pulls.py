"""cold_reads = "replica": a backlog is leased by the master and its bytes come from the replica."""

import asyncio
import os
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import GROUP, Pair, make_pair
from tests.integration.node.test_metrics import Page
from tests.integration.processes import NodeFactory, free_ports

COUNT = 40_000
BODY_SIZE = 500
NUMBERS = set(range(COUNT))


def read_size(port: int) -> float:
    return Page(port)("tern_read_bytes_total")


@pytest.mark.long
async def test_a_backlog_costs_the_master_no_reading_and_outlives_the_replica(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_COLD_READS": "replica", "TERN_COLD_AFTER": "64KiB"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    async with ternmq.connect(pair.url, app="test") as mq:
        for first in range(0, COUNT, 2_000):
            rows = range(first, first + 2_000)
            await mq.send_many(
                "orders", [b"%d %s" % (row, os.urandom(BODY_SIZE).hex().encode()) for row in rows]
            )
    ports = await asyncio.to_thread(_restart, pair)
    await asyncio.to_thread(pair.wait_in_sync, 2)
    master, replica = await asyncio.to_thread(pair.master), await asyncio.to_thread(pair.replica)
    before = {broker.port: read_size(ports[broker.port]) for broker in pair.brokers}

    async with ternmq.connect(pair.url, app="test") as mq:
        await mq.send("orders", b"-1")  # Somebody leads, and its replica is in step.
        got = await _consume(mq, "all", COUNT)
        assert {number for number in got if number >= 0} == NUMBERS
        assert len(got) <= COUNT + 1, "nothing came twice"
        of_master = read_size(ports[master.port]) - before[master.port]
        of_replica = read_size(ports[replica.port]) - before[replica.port]
        assert of_replica > COUNT * BODY_SIZE
        assert of_master < of_replica / 10, "the last pieces, which are not old"

        again = await _consume(mq, "half", COUNT, when=(COUNT // 3, replica.kill))
        assert {number for number in again if number >= 0} == NUMBERS
        assert read_size(ports[master.port]) - before[master.port] > of_replica / 3
        assert mq.cluster.broker(GROUP).connection is not None


def _restart(pair: Pair) -> dict[int, int]:
    """Nothing is in memory any more; each shows its figures. The master comes first."""
    brokers, first = pair.brokers, pair.master()
    ports = {broker.port: free_ports() for broker in brokers}
    for broker in sorted(brokers, key=lambda broker: broker is first):
        broker.stop()
        metrics = {"TERN_METRICS_PORT": str(ports[broker.port])}
        broker.environment = {**(broker.environment or {}), **metrics}
    for broker in sorted(brokers, key=lambda broker: broker is not first):
        broker.start()
    return ports


async def _consume(
    mq: ternmq.Client, group: str, count: int, when: tuple[int, object] | None = None
) -> list[int]:
    got: list[int] = []
    lacking = set(range(count))
    async with asyncio.timeout(60), mq.consumer("orders", group=group) as consumer:
        async for message in consumer:
            message.ack()
            got.append(int(message.body.split()[0]))
            if when is not None and len(got) == when[0]:
                assert callable(when[1])
                when[1]()
            lacking.discard(got[-1])
            if not lacking:
                break
        await consumer.flush()
    return got
