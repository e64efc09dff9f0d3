"""`read`: by sequence, to an end or on and on, without a group."""

import asyncio

import pytest

import ternmq
from ternmq.core.errors import BadRequest
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.client.waiting import until


async def test_reading_goes_to_what_is_there_now(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=4) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(10)])

        assert [message.body async for message in mq.read("orders")] == [
            b"%d" % at for at in range(10)
        ]
        assert [message.sequence async for message in mq.read("orders", start=3, end=6)] == [
            3,
            4,
            5,
        ]
        assert [len(batch) async for batch in mq.read("orders", start=2).batches()] == [2, 4, 2]
        assert [message async for message in mq.read("orders", start="latest")] == []
    assert broker.joins == []


async def test_following_goes_on_with_what_comes(broker: FakeBroker, mq: ternmq.Client) -> None:
    seen: list[bytes] = []

    async def follow() -> None:
        async for message in mq.read("orders", follow=True):
            seen.append(message.body)  # noqa: PERF401 - one at a time, as they come

    await mq.send("orders", b"before")
    following = asyncio.create_task(follow())
    await until(lambda: seen == [b"before"])
    await mq.send("orders", b"after")
    await until(lambda: seen == [b"before", b"after"])
    following.cancel()
    await asyncio.wait([following])


async def test_read_messages_belong_to_nobody(mq: ternmq.Client) -> None:
    await mq.send("orders", b"x")
    [message] = [message async for message in mq.read("orders")]

    for settle in (message.ack, message.retry, message.reject):
        with pytest.raises(BadRequest, match="belong to nobody"):
            settle()


async def test_reading_survives_a_cut_connection(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, batch_rows_max=2) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(6)])
        seen = []
        async for message in mq.read("orders"):
            seen.append(message.body)
            if len(seen) == 2:
                broker.cut_all()

    assert seen == [b"%d" % at for at in range(6)]


async def test_an_end_and_follow_exclude_each_other(mq: ternmq.Client) -> None:
    with pytest.raises(BadRequest, match="not both"):
        mq.read("orders", end=5, follow=True)
    with pytest.raises(BadRequest, match="did you mean 'follow'"):
        mq.read("orders", folow=True)  # type: ignore[call-arg]
