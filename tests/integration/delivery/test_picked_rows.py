"""Rows that come again travel without their neighbours and say all they said before."""

import asyncio
from typing import Any

import ternmq
from ternmq.batch.rows.pick import PickedView
from ternmq.testing import node

ROWS = 1_000


def said(message: Any) -> tuple[object, ...]:
    return (
        message.id,
        message.sequence,
        message.body,
        message.key,
        message.tag,
        message.order_key,
        message.properties,
        message.priority,
        message.born_at,
        message.stored_at,
        message.app,
    )


async def test_rows_that_come_again_are_picked_and_say_what_they_said() -> None:
    rows = [
        ternmq.Outgoing(
            body=b"%d" % row,
            key=f"k{row}",
            tag="even" if row % 2 else None,
            priority=row % 9,
            order_key=f"o{row}",
            properties={"row": row} if row % 3 else None,
        )
        for row in range(ROWS)
    ]
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", rows)
        async with (
            asyncio.timeout(20),
            mq.consumer("orders", group="g", prefetch=2 * ROWS) as consumer,
        ):
            first: dict[int, tuple[object, ...]] = {}
            again: list[Any] = []
            async for message in consumer:
                if message.sequence % 100 == 7 and message.attempt < 3:
                    first[message.sequence] = said(message)
                    message.retry(after=0.01, error=ValueError(f"{message.sequence}"))
                    continue
                message.ack()
                again += [message] if message.attempt == 3 else []
                if len(again) == ROWS // 100:
                    break
            assert [said(message) for message in again] == list(first.values())
            assert [m.last_error.text for m in again] == [str(sequence) for sequence in first]
            assert isinstance(again[0]._delivery.batch, PickedView)
            await consumer.flush()
        [line] = await mq.admin.ledger(group="g")
    assert line.acked == ROWS


async def test_a_batch_of_picked_rows_has_their_bodies_and_columns() -> None:
    async with node() as url, ternmq.connect(url, app="test") as mq:
        await mq.send_many("orders", [b"%09d" % row for row in range(ROWS)])
        async with (
            asyncio.timeout(20),
            mq.consumer("orders", group="g", prefetch=2 * ROWS) as consumer,
        ):
            batches = consumer.batches(ROWS)
            for message in (whole := await anext(batches)):
                if message.sequence in (5, 300, 301, 900):
                    message.retry(after=0)
            whole.ack()
            some = await anext(batches)

            assert some.bodies == [b"%09d" % row for row in (5, 300, 301, 900)]
            assert some.to_arrow().to_pydict()["sequence"] == [5, 300, 301, 900]
            assert [message.attempt for message in some] == [2, 2, 2, 2]
            await some.ack()
        [line] = await mq.admin.ledger(group="g")
    assert line.acked == ROWS
