"""Deleting and making again: nothing comes back from the dead (D7)."""

import asyncio

import pytest

import ternmq
from ternmq.wire.messages.groups import Start
from tests.integration.delivery.test_groups import line_of
from tests.integration.processes import Node
from tests.integration.storage.test_disk_faults import take
from tests.integration.verifiable_clients import whole_topic
from tests.waiting import until

TOPIC = "orders"
WHEN = ["at once", "after a restart", "after kill -9"]


async def again(node: Node, when: str) -> ternmq.Client:
    """A client after whatever happens to the node between deleting and making again."""
    if when == "after a restart":
        node.restart()
    elif when == "after kill -9":
        node.kill()
        node.start()
    return await ternmq.connect(node.url)


@pytest.mark.parametrize("when", WHEN)
async def test_a_topic_made_again_is_empty_and_has_no_groups(when: str, node: Node) -> None:
    async with ternmq.connect(node.url) as mq:
        await mq.send_many("other", [b"%d" % number for number in range(10)])
        await mq.send_many(TOPIC, [b"old"] * 30)
        assert len(await take(mq, "g", 10)) == 10
        await mq.admin.delete_topic(TOPIC)
    mq = await again(node, when)
    async with mq:
        assert TOPIC not in [topic.name for topic in await mq.admin.topics()]
        with pytest.raises(ternmq.TopicNotFound):
            await whole_topic(mq, TOPIC)
        assert await mq.admin.groups() == []

        receipts = await mq.send_many(TOPIC, [b"new"] * 5)
        assert receipts[0].sequence == 0
        assert list((await whole_topic(mq, TOPIC)).values()) == ["new"] * 5
        assert await take(mq, "g", 5) == ["new"] * 5
        line = await line_of(mq, TOPIC, "g")
        assert (line.start, line.total, line.acked) == (0, 5, 5)
        assert len(await whole_topic(mq, "other")) == 10
    mq = await again(node, when)  # And its second life survives what comes next.
    async with mq:
        assert list((await whole_topic(mq, TOPIC)).values()) == ["new"] * 5
        assert (await line_of(mq, TOPIC, "g")).total == 5


@pytest.mark.parametrize("when", WHEN)
async def test_a_group_made_again_starts_where_it_is_told(when: str, node: Node) -> None:
    """Neither acks nor waiting retries of its first life count in its second."""
    async with ternmq.connect(node.url) as mq:
        await mq.send_many(TOPIC, [b"%d" % number for number in range(30)])
        assert len(await take(mq, "g", 20)) == 20
        async with mq.consumer(TOPIC, group="g") as consumer:
            await (await anext(consumer)).retry(after=0)
        await mq.admin.delete_group(TOPIC, "g")
        await mq.admin.create_group(TOPIC, "kept", Start(at="earliest"))
    mq = await again(node, when)
    async with mq:
        assert [group.name for group in await mq.admin.groups(TOPIC)] == ["kept"]
        await mq.admin.create_group(TOPIC, "g", Start(at="sequence", value=25))
        line = await line_of(mq, TOPIC, "g")
        assert (line.start, line.total, line.ready, line.generation) == (25, 5, 5, 1)
    mq = await again(node, when)
    async with mq:
        assert await take(mq, "g", 5) == ["25", "26", "27", "28", "29"]
        assert (await line_of(mq, TOPIC, "g")).acked == 5


async def test_consumers_and_acks_of_a_deleted_group_touch_nothing_that_comes_after(
    node: Node,
) -> None:
    """A consumer of the first life acks into the second: late, and harmless."""
    async with ternmq.connect(node.url) as mq, ternmq.connect(node.url) as other:
        await mq.send_many(TOPIC, [b"%d" % number for number in range(10)])
        async with mq.consumer(TOPIC, group="g") as consumer:
            held = [await anext(consumer) for _ in range(10)]
            await other.admin.delete_group(TOPIC, "g")
            await other.admin.create_group(TOPIC, "g", Start(at="earliest"))
            for message in held:
                message.ack()
            with pytest.raises(ternmq.GroupNotFound):
                async with asyncio.timeout(10):
                    await anext(consumer)
        line = await line_of(other, TOPIC, "g")
        assert (line.ready, line.acked) == (10, 0)
    node.kill()
    node.start()
    async with ternmq.connect(node.url) as mq:
        line = await line_of(mq, TOPIC, "g")
        assert (line.ready, line.acked) == (10, 0)
        assert len(await take(mq, "g", 10)) == 10


async def test_sending_while_a_topic_is_deleted_and_made_again_mixes_nothing(node: Node) -> None:
    """Every receipt belongs to one life of the topic; the last life holds only its own."""
    stop = asyncio.Event()
    counts = {"sent": 0}

    async def produce(mq: ternmq.Client) -> None:
        while not stop.is_set():
            await mq.send(TOPIC, b"%d" % counts["sent"])
            counts["sent"] += 1

    async with ternmq.connect(node.url) as mq, ternmq.connect(node.url) as other:
        producing = asyncio.create_task(produce(mq))
        for _ in range(10):

            def sent_some(before: int = counts["sent"]) -> bool:
                if producing.done():
                    producing.result()
                return counts["sent"] >= before + 5

            await until(sent_some, every=0.001)
            await other.admin.delete_topic(TOPIC)
        stop.set()
        await producing
        deleted_at = counts["sent"]
        await other.send(TOPIC, b"last")
        found = await whole_topic(other, TOPIC)
    assert list(found) == list(range(len(found)))
    assert list(found.values())[-1] == "last"
    assert len(found) <= deleted_at
    node.kill()
    node.start()
    async with ternmq.connect(node.url) as mq:
        assert await whole_topic(mq, TOPIC) == found
