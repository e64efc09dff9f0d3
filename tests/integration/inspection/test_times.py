"""J13, R25: how long messages of a group wait and are worked on, as brokers count it."""

from typing import Any

import pytest

import ternmq
import ternmq.testing
from ternmq.client.inspection.times import TimeSpread
from ternmq.testing.clock import TurnedClock

ROWS = 40


def by_bound(seen: TimeSpread) -> dict[float, int]:
    """Messages by the bound of their bucket."""
    return {bound: n for bound, n in zip(seen.bounds_s, seen.counts, strict=False) if n}


@pytest.mark.parametrize(
    "how", [{}, {"filter": "n >= 0"}, {"ordered": True}], ids=["plain", "filtered", "ordered"]
)
async def test_waits_and_handling_are_counted_by_message(how: dict[str, Any]) -> None:
    clock = TurnedClock()
    async with ternmq.testing.node(clock=clock) as url, ternmq.connect(url) as mq:
        await mq.admin.create_topic("orders")
        await mq.admin.create_group("orders", "g")
        for number in range(ROWS):
            await mq.send("orders", b"x", key=f"k{number}", properties={"n": number})
        clock.turn(7)
        consumer = await mq.consumer("orders", group="g", prefetch=100, **how).start()
        taken = [await anext(consumer) for _ in range(ROWS)]
        clock.turn(2)
        for message in taken[:-1]:
            message.ack()
        taken[-1].retry(after=1)
        await consumer.flush()

        times = await mq.admin.group_times("orders", "g")
        assert by_bound(times.wait) == by_bound(times.wait_ever) == {10.0: ROWS}
        assert by_bound(times.handle) == {2.5: ROWS - 1}, "a retry is not an ack"

        clock.turn(60)
        again = await anext(consumer)
        again.ack()
        await consumer.flush()
        await consumer.close()
        times = await mq.admin.group_times("orders", "g")
        assert by_bound(times.wait) == {10.0: ROWS}, "only the first attempt is a wait"
        assert times.handle.rows == ROWS
        clock.turn(3_600)
        times = await mq.admin.group_times("orders", "g")
        assert (times.wait.rows, times.wait_ever.rows) == (0, ROWS)


async def test_batches_of_different_age_in_one_pull_are_counted_apart() -> None:
    clock = TurnedClock()
    async with ternmq.testing.node(clock=clock) as url, ternmq.connect(url) as mq:
        await mq.admin.create_topic("orders")
        await mq.admin.create_group("orders", "g")
        await mq.send_many("orders", [b"old"] * 30)
        clock.turn(50)
        await mq.send_many("orders", [b"new"] * 10)
        clock.turn(4)
        consumer = await mq.consumer("orders", group="g", prefetch=1_000).start()
        for _ in range(40):
            (await anext(consumer)).ack()
        await consumer.flush()
        await consumer.close()

        assert by_bound((await mq.admin.group_times("orders", "g")).wait) == {60.0: 30, 5.0: 10}


async def test_a_group_that_is_not_there_is_named() -> None:
    async with ternmq.testing.node() as url, ternmq.connect(url) as mq:
        await mq.admin.create_topic("orders")
        with pytest.raises(ternmq.GroupNotFound):
            await mq.admin.group_times("orders", "nobody")
        with pytest.raises(ternmq.TopicNotFound):
            await mq.admin.group_times("nothing", "g")
