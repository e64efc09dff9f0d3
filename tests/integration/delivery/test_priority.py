"""Handing out by priority: the real broker in this process, and the window alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.broker.groups import priority as priority_module
from ternmq.testing import node
from tests.integration.delivery.test_delivery import ledger_shows, take


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        await client.admin.create_topic("t")
        await client.admin.create_group("t", "g", ternmq.Start())
        await client.admin.set_group("t", "g", priority=True)
        yield client


def rows(*priorities: int) -> list[Any]:
    return [
        ternmq.Outgoing(body=f"{priority}.{number}".encode(), priority=priority)
        for number, priority in enumerate(priorities)
    ]


async def bodies(mq: Any, count: int, **options: Any) -> list[bytes]:
    found = []
    async with mq.consumer("t", group="g", prefetch=2, **options) as consumer:
        for _ in range(count):
            [message] = await take(consumer, 1)
            found.append(message.body)
            await message.ack()
    return found


async def test_higher_priorities_come_first_and_equal_ones_in_the_order_they_came(mq: Any) -> None:
    await mq.send_many("t", rows(0, 5, 0, 9, 5))
    await mq.send_many("t", rows(0, 9))

    got = await bodies(mq, 7)

    assert got == [b"9.3", b"9.1", b"5.1", b"5.4", b"0.0", b"0.2", b"0.0"]


async def test_a_window_of_ready_rows_is_looked_at_and_not_more(
    mq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority_module, "WINDOW", 4)
    for number in range(6):
        await mq.send("t", b"%d" % number, priority=number)

    got = await bodies(mq, 6)

    assert got[0] == b"3", "the highest of the first four"
    assert sorted(got) == [b"%d" % number for number in range(6)]


async def test_a_retry_keeps_its_priority_and_half_of_a_pull_is_left_to_new_ones(mq: Any) -> None:
    await mq.send_many("t", rows(7, 7, 7, 7))
    await mq.admin.set_group("t", "g", retry="fixed:1ms")
    async with mq.consumer("t", group="g", prefetch=4) as consumer:
        for message in await take(consumer, 4):
            await message.retry()
    await mq.send_many("t", rows(1, 1, 1, 1))
    await ledger_shows(mq, "ready", 8)
    async with mq.consumer("t", group="g", prefetch=8) as consumer:
        first = await take(consumer, 4)
        attempts = [message.attempt for message in first]
        for message in first + await take(consumer, 4):
            message.ack()
        await consumer.flush()

    assert attempts == [2, 2, 1, 1]
    [line] = await mq.admin.ledger("t", "g")
    assert line.acked == 8


async def test_priority_works_with_a_filter(mq: Any) -> None:
    await mq.send_many("t", rows(1, 2, 3, 2))

    assert await bodies(mq, 2, filter="priority = 2") == [b"2.1", b"2.3"]

    await ledger_shows(mq, "filtered", 2)


async def test_priority_is_switched_while_rows_are_known_and_nothing_is_lost(mq: Any) -> None:
    await mq.send_many("t", rows(1, 2, 3, 4))
    assert await bodies(mq, 1) == [b"4.3"]
    await mq.admin.set_group("t", "g", priority=False)
    assert await bodies(mq, 1) == [b"1.0"]
    await mq.admin.set_group("t", "g", priority=True)
    await mq.admin.reset_group("t", "g", ternmq.Start())

    assert await bodies(mq, 4) == [b"4.3", b"3.2", b"2.1", b"1.0"]
