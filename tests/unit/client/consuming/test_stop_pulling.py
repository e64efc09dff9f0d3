"""A consumer that takes no more: what was not shown goes back, what is in hand can be settled."""

import asyncio

import ternmq
from ternmq import sync
from tests.unit.client.app.test_app import kinds
from tests.unit.client.fake_broker import FakeBroker
from tests.waiting import until


async def test_iterating_ends_and_what_was_not_shown_goes_back(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    await mq.send_many("orders", [b"%d" % at for at in range(10)])
    async with mq.consumer("orders", group="billing") as consumer:
        shown = []
        async for message in consumer:
            shown.append(message)
            if len(shown) == 3:
                consumer.stop_pulling()
        await until(lambda: kinds(broker) == ["back"] * 7)
        for message in shown:
            await message.ack()

    assert [message.body for message in shown] == [b"0", b"1", b"2"]
    assert kinds(broker) == ["ack"] * 3 + ["back"] * 7


async def test_whoever_waits_for_a_message_is_told_that_none_comes(
    broker: FakeBroker, mq: ternmq.Client
) -> None:
    async with mq.consumer("orders", group="billing") as consumer:
        waiting = asyncio.ensure_future(anext(consumer, None))
        await until(lambda: broker.pulls)
        consumer.stop_pulling()
        assert await waiting is None
        assert await consumer.next_batch() is None


async def test_a_blocking_consumer_can_do_it_too(broker: FakeBroker, mq: ternmq.Client) -> None:
    def consume() -> int:
        with sync.connect(broker.url) as client, client.consumer("o", group="g") as consumer:
            next(consumer).ack()
            consumer.stop_pulling()
            return len(list(consumer))

    await mq.send("o", b"x")
    assert await asyncio.to_thread(consume) == 0
