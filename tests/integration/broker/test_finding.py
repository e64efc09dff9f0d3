"""Messages by id and key, and messages that are stored once, on a real node (R15, Q9)."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import ternmq
from ternmq import Outgoing
from tests.integration.processes import Node, tern


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


def rows(*names: str) -> list[Outgoing]:
    return [Outgoing(body=name.encode(), explicit_id=name.encode()) for name in names]


async def bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    return [message.body async for message in mq.read(topic)]


async def test_a_message_is_found_by_its_id_and_by_its_key(shared_node: Node, topic: str) -> None:
    """R15."""
    async with ternmq.connect(shared_node.url, app="shop") as mq:
        many = await mq.send_many(topic, [b"%d" % number for number in range(500)])
        receipt = await mq.send(topic, b"paid", key=f"{topic}-7")
        [by_id] = await mq.find(id=many[123].id)
        assert (by_id.message.body, by_id.message.sequence) == (b"123", many[123].sequence)
        [by_key] = await mq.find(key=f"{topic}-7")
        assert (by_key.message.id, by_key.broker_group) == (receipt.id, "main")
        now = datetime.now(UTC)
        hour = timedelta(hours=1)
        assert await mq.find(topic, key=f"{topic}-7", start=now - hour, end=now + hour)
        assert not await mq.find(topic, key=f"{topic}-7", end=now - hour)
        with pytest.raises(ternmq.TopicNotFound, match="no topic 'nowhere'"):
            await mq.find("nowhere", key=f"{topic}-7")


def test_the_command_shows_the_message_and_its_place(shared_node: Node, topic: str) -> None:
    url = shared_node.url
    sent = tern("send", topic, "hello", "--key", topic, "--json", url=url).json()
    [found] = tern("find", "--id", sent["id"], "--json", url=url).json()
    assert (found["body"], found["topic"], found["broker_group"]) == ("hello", topic, "main")
    shown = tern("find", "--key", topic, "--topic", topic, "--from", "1h", url=url)
    assert sent["id"] in shown.out
    assert "no message found" in tern("find", "--key", "nobody's", url=url, code=1).err
    assert "say --id ID or --key KEY" in tern("find", url=url, code=2).err
    assert "not a message id" in tern("find", "--id", "?", url=url, code=2).err


async def test_an_id_is_stored_once_also_after_kill_and_restart(node: Node, topic: str) -> None:
    """Q9: the index knows the id for the whole retention."""
    async with ternmq.connect(node.url, app="relay") as mq:
        first = await mq.send_once(topic, rows("a", "b", "c"), broker_group="main")
        assert [(one.sequence, one.duplicate) for one in first] == [
            (0, False),
            (1, False),
            (2, False),
        ]
        again = await mq.send_once(topic, rows("c", "x", "a", "x"))
        assert [(one.sequence, one.duplicate) for one in again] == [
            (2, True),
            (3, False),
            (0, True),
            (3, True),
        ]
        assert await bodies(mq, topic) == [b"a", b"b", b"c", b"x"]
    node.kill()
    node.start()
    async with ternmq.connect(node.url, app="relay") as mq:
        later = await mq.send_once(topic, rows("a", "x", "new"))
        assert [one.duplicate for one in later] == [True, True, False]
        assert later[0].stored_at == first[0].stored_at
        assert await bodies(mq, topic) == [b"a", b"b", b"c", b"x", b"new"]
    node.stop()
    node.start()
    async with ternmq.connect(node.url, app="relay") as mq:
        assert (await mq.send_once(topic, rows("new")))[0].duplicate
        other = await mq.send_once(f"{topic}-2", rows("a"))
        assert not other[0].duplicate, "an id counts within its topic"


async def test_racing_requests_with_the_same_ids_store_each_once(
    shared_node: Node, topic: str
) -> None:
    async with (
        ternmq.connect(shared_node.url, app="one") as one,
        ternmq.connect(shared_node.url, app="two") as two,
    ):
        names = [f"id{number}" for number in range(200)]

        async def send(mq: ternmq.Client, low: int) -> list[ternmq.OnceReceipt]:
            return await mq.send_once(topic, rows(*names[low : low + 100]))

        calls = [send(mq, low) for low in range(0, 101, 10) for mq in (one, two)]
        answers = await asyncio.gather(*calls)
        assert sorted(await bodies(one, topic)) == sorted(name.encode() for name in names)
        fresh = [receipt for answer in answers for receipt in answer if not receipt.duplicate]
        assert len(fresh) == len(names)


async def test_rows_without_an_id_are_refused(shared_node: Node, topic: str) -> None:
    async with ternmq.connect(shared_node.url, app="relay") as mq:
        with pytest.raises(ternmq.BadRequest, match="explicit_id"):
            await mq.send_once(topic, [Outgoing(body=b"x")])
        assert await mq.send_once(topic, []) == []


def test_the_blocking_client_finds_and_sends_once(shared_node: Node, topic: str) -> None:
    with ternmq.sync.connect(shared_node.url, app="relay") as mq:
        [receipt] = mq.send_once(topic, rows(f"{topic}-id"))
        [found] = mq.find(topic, id=f"{topic}-id".encode())
        assert found.message.sequence == receipt.sequence
