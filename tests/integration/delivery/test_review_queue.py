"""Several people at the same dead letters: the real broker in this process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import ternmq
from ternmq.core.range_set import RangeSet
from ternmq.testing import node

LETTERS = 20


@pytest.fixture
async def mq() -> AsyncIterator[Any]:
    async with node() as url, ternmq.connect(url, app="test") as client:
        await client.send_many("orders", [b"x"] * LETTERS)
        async with client.consumer("orders", group="g", prefetch=LETTERS) as consumer:
            for _ in range(LETTERS):
                (await anext(consumer)).reject("no")
            await consumer.flush()
        yield client


async def copies(mq: Any) -> int:
    lines = await mq.admin.ledger("orders", "g")
    return sum(line.total for line in lines if line.lane == "private")


async def test_two_people_who_send_the_same_letters_again_send_each_once(mq: Any) -> None:
    """D10: what one has in hand is gone for the other, who is told so."""
    [whole] = await mq.admin.open_dead_letters("g")
    both = await asyncio.gather(*(mq.admin.resend_dead_letters("g", [whole]) for _ in range(2)))

    assert sum(done.handled for done in both) == LETTERS
    assert await copies(mq) == LETTERS
    for done in both:
        assert done.handled + RangeSet(done.gone).count == LETTERS


async def test_a_letter_is_sent_again_or_deleted_never_both(mq: Any) -> None:
    """D10: each of two people is told the truth about each letter."""
    [whole] = await mq.admin.open_dead_letters("g")
    sent, deleted = await asyncio.gather(
        mq.admin.resend_dead_letters("g", [whole]), mq.admin.delete_dead_letters("g", [whole])
    )

    assert sent.handled + deleted.handled == LETTERS
    assert await copies(mq) == sent.handled
    assert await mq.admin.open_dead_letters("g") == []
