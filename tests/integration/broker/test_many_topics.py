"""Many topics and many groups on one node: bounded files, bounded memory, a quick restart (Q17)."""

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

import ternmq
from ternmq.core.units import MIB
from ternmq.wire.messages.groups import Start
from tests.integration.broker.test_bad_peers import memory
from tests.integration.processes import Node, NodeFactory
from tests.integration.verifiable_clients import balanced

AT_ONCE = 500
FILES_MAX = 200
SMALL = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_CHECKPOINT_INTERVAL_MS": "500"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a run cost; written beside the test's other output."""

    topics: int
    made_s: float
    restart_s: float
    memory_before: int
    memory_after: int
    memory_restarted: int
    files: int
    bytes_read: int


def files(node: Node) -> int:
    """How many files and sockets the node has open."""
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def last_event(node: Node, event: str) -> dict[str, str]:
    """The fields of the last such line in the node's log."""
    line = [line for line in node.stderr_text().splitlines() if event in line][-1]
    return dict(field.split("=", 1) for field in line.split() if "=" in field)


async def make_topics(mq: ternmq.Client, count: int) -> None:
    """One message to each, many at a time; the topics are made by it."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            receipts = await mq.send_many(f"topic.{number}", [b"%d" % number])
            assert receipts[0].sequence == 0

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(one(number))


async def check_topics(mq: ternmq.Client, count: int) -> None:
    """All of them are there, and some of them have what was sent."""
    names = {topic.name for topic in await mq.admin.topics("topic.")}
    assert len(names) == count
    for number in range(0, count, max(1, count // 50)):
        bodies = [message.body async for message in mq.read(f"topic.{number}")]
        assert bodies == [b"%d" % number]


async def run_topics(node: Node, count: int) -> Figures:
    before = memory(node)
    async with ternmq.connect(node.url) as mq:
        began = time.monotonic()
        await make_topics(mq, count)
        made = time.monotonic() - began
        await check_topics(mq, count)
        after, opened = memory(node), files(node)
    node.kill()
    began = time.monotonic()
    node.start()
    restarted = time.monotonic() - began
    async with ternmq.connect(node.url) as mq:
        await check_topics(mq, count)
        receipt = await mq.send("topic.0", b"again")
        assert receipt.sequence == 1
    return Figures(
        topics=count,
        made_s=made,
        restart_s=restarted,
        memory_before=before,
        memory_after=after,
        memory_restarted=memory(node),
        files=max(opened, files(node)),
        bytes_read=int(last_event(node, "store opened")["bytes_read"]),
    )


async def test_two_thousand_topics(node_factory: NodeFactory) -> None:
    """Q17: files do not grow with topics; what a topic costs in memory is small."""
    node = node_factory(environment=SMALL)

    figures = await run_topics(node, 2000)

    assert figures.files < FILES_MAX
    assert figures.memory_after - figures.memory_before < 40 * MIB
    assert figures.restart_s < 20


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_fifty_thousand_topics(node_factory: NodeFactory, tmp_path: Path) -> None:
    """Q17: about two kilobytes a topic, and no more files than with one."""
    node = node_factory(environment=SMALL)

    figures = await run_topics(node, 50_000)

    (tmp_path / "figures.json").write_text(json.dumps(asdict(figures), indent=2))
    assert figures.files < FILES_MAX
    assert figures.memory_after - figures.memory_before < 300 * MIB
    assert figures.memory_restarted < 400 * MIB
    assert figures.restart_s < 30


async def test_seventy_groups_on_one_topic(node: Node) -> None:
    """Q17: each sees every message, once, at its own pace; a restart keeps all of them."""
    topic = "popular"
    count = 2000
    groups = [f"group.{number}" for number in range(70)]

    async def consume(mq: ternmq.Client, group: str) -> set[bytes]:
        got: list[bytes] = []
        async with mq.consumer(topic, group=group, prefetch=2000) as consumer:
            async for batch in consumer.batches():
                got += batch.bodies
                batch.ack()
                if len(got) >= count:
                    break
            await consumer.flush()
        assert len(got) == count
        return set(got)

    async with ternmq.connect(node.url) as mq, asyncio.timeout(90):
        for group in groups:
            await mq.admin.create_group(topic, group, Start(at="earliest"))
        sent = [b"%d" % number for number in range(count)]
        consuming = [asyncio.create_task(consume(mq, group)) for group in groups]
        await mq.send_many(topic, sent)
        for got in await asyncio.gather(*consuming):
            assert got == set(sent)
        assert files(node) < FILES_MAX
    assert node.stop() == 0
    node.start()
    async with ternmq.connect(node.url) as mq:
        lines = await mq.admin.ledger(topic)
        assert len(lines) == 70
        assert all(balanced(line) and line.acked == count for line in lines)
