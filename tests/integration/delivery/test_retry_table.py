"""The whole retry table with a turned clock: 17 deliveries over 4 h 46 min (R12)."""

import asyncio
from typing import Any

import pytest

import ternmq
from ternmq.testing import TurnedClock, node
from tests.integration.delivery.test_delivery import take

MINUTE, HOUR = 60, 3_600
REST = [30, *(n * MINUTE for n in range(1, 11)), 20 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR]
TABLES = {"default": [5, *REST], "rocketmq": [10, *REST]}
TICKS_S = 0.12  # Two looks of the broker at its deadlines.


@pytest.mark.parametrize("policy", TABLES)
async def test_a_failing_message_comes_17_times_at_the_exact_moments_and_then_dies(
    policy: str,
) -> None:
    """R12: never a millisecond early; the limit of 17 deliveries is the default."""
    clock = TurnedClock()
    began = clock.now_ms()
    async with node(clock=clock) as url, ternmq.connect(url, app="test") as mq:
        sent = await mq.send("orders", b"x")
        async with mq.consumer("orders", group="g") as consumer:
            await mq.admin.set_group("orders", "g", retry=policy)
            for attempt, wait_s in enumerate(TABLES[policy], start=1):
                [message] = await take(consumer, 1)
                assert (message.id, message.attempt) == (sent.id, attempt)
                message.retry(reason="not yet")
                await consumer.flush()
                clock.turn(wait_s - 0.001)
                await asyncio.sleep(TICKS_S)
                assert (await waiting(mq)) == (1, 0)
                clock.turn(0.001)
            [last] = await take(consumer, 1)
            assert last.attempt == 17
            await last.retry(reason="still not")
            [line] = await mq.admin.ledger(group="g")
    assert (line.dead, line.total) == (1, 1)
    if policy == "default":
        assert clock.now_ms() - began == (4 * HOUR + 45 * MINUTE + 35) * 1_000


async def waiting(mq: Any) -> tuple[int, int]:
    [line] = await mq.admin.ledger(group="g")
    return line.waiting_retry, line.ready
