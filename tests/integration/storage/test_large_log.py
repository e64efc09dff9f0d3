"""A start after a crash reads what follows the last checkpoint, however long the log is (R8)."""

import time

import pytest

import ternmq
from ternmq.core.units import MIB
from tests.integration.broker.test_many_topics import last_event
from tests.integration.processes import Node, NodeFactory

TOPIC = "large"
ROWS = 1000
BODY = bytes(range(100)) * 10
SMALL = {"TERN_SEGMENT_SIZE": "16MiB", "TERN_CHECKPOINT_INTERVAL_MS": "500"}


async def write(node: Node, size: int) -> int:
    """About so many bytes of messages; returns how many messages."""
    count = 0
    async with ternmq.connect(node.url, compression="none") as mq:
        while count * len(BODY) < size:
            receipts = await mq.send_many(TOPIC, [BODY] * ROWS)
            assert not receipts.failures
            count += ROWS
    return count


async def check_start(node_factory: NodeFactory, size: int) -> tuple[int, float]:
    node = node_factory(environment=SMALL)
    count = await write(node, size)
    node.kill()
    began = time.monotonic()
    node.start()
    took = time.monotonic() - began
    opened = last_event(node, "store opened")
    assert opened["unclean"] == "True"
    assert int(opened["safe_offset"]) >= size
    async with ternmq.connect(node.url) as mq:
        (status,) = await mq.admin.broker_status([TOPIC])
        assert (status.topics[0].first, status.topics[0].end) == (0, count)
        for at in (0, count // 2, count - 1):
            (message,) = [found async for found in mq.read(TOPIC, start=at, end=at + 1)]
            assert message.body == BODY
        assert (await mq.send(TOPIC, b"after")).sequence == count
    return int(opened["bytes_read"]), took


async def test_a_start_after_a_crash_reads_little_of_a_large_log(
    node_factory: NodeFactory,
) -> None:
    bytes_read, _ = await check_start(node_factory, 300 * MIB)

    assert bytes_read < 60 * MIB


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_start_after_a_crash_with_four_gigabytes_reads_no_more(
    node_factory: NodeFactory,
) -> None:
    bytes_read, took = await check_start(node_factory, 4096 * MIB)

    assert bytes_read < 100 * MIB
    assert took < 20
