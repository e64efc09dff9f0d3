"""The node in process runs a delay server: delays fire when the test turns the clock."""

import asyncio
from datetime import timedelta

import ternmq
from ternmq.testing import TurnedClock, node


async def test_turning_the_clock_is_waiting() -> None:
    """R7 without half an hour of waiting; and cancelled messages never come."""
    clock = TurnedClock()
    async with node(clock=clock) as url, ternmq.connect(url) as mq:
        paid = await mq.send("order.close", b"paid", delay=timedelta(minutes=30))
        await mq.send("order.close", b"unpaid", delay=timedelta(minutes=30))
        await mq.send("order.close", b"in a year", delay=timedelta(days=365))
        assert await mq.cancel(paid) is ternmq.CancelResult.CANCELLED
        async with asyncio.timeout(30), mq.consumer("order.close", group="closing") as consumer:
            clock.turn(30 * 60)
            message = await anext(consumer)
            assert message.body == b"unpaid"
            assert message.stored_at.timestamp() * 1000 == clock.now_ms()
            await message.ack()  # Its lease would be over in a year.
            clock.turn(365 * 86_400)
            assert (await anext(consumer)).body == b"in a year"
