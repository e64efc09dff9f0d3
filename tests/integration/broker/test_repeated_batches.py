"""Repeats of a batch: what is stored stays stored, whatever is allowed by now (Q2, Q8)."""

import pytest

import ternmq
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.core.errors import Paused, SequenceTooOld, TooLarge, Unauthorized
from ternmq.core.ids import ProducerId
from ternmq.testing import node
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.numbers import Command


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"body_size_max": 10}, TooLarge),
        ({"closed": True, "apps": ["other"]}, Unauthorized),
        ({"paused": True}, Paused),
    ],
)
async def test_a_repeat_is_recognised_before_anything_is_refused(
    settings: dict[str, object], refusal: type[Exception]
) -> None:
    """A dispatcher that crashed before it noted the answer asks again: a refusal would mean that
    the batch is not there, and it would send the messages a second time."""
    origin = Origin(topic="t", app="shop", producer=ProducerId(1, 2))
    first, second = (
        encode_messages([Outgoing(body=bytes(100))], origin=origin, first_sequence=number)
        for number in range(2)
    )
    async with node() as url, ternmq.connect(url, app="shop") as mq:
        await mq.admin.create_topic("t")
        connection = await mq.cluster.broker("main").get()
        await connection.call(Command.PUBLISH, first)
        await mq.admin.set_topic("t", **settings)

        answer = await connection.call(Command.PUBLISH, first)
        assert PUBLISHED.unpack(answer)[-1] & PUBLISHED_DUPLICATE
        with pytest.raises(refusal):
            await connection.call(Command.PUBLISH, second)


async def test_a_batch_in_order_is_not_stored_behind_a_later_one_of_its_producer() -> None:
    """It was given up, and its bytes came late: its key has gone on without it."""
    origin = Origin(topic="t", app="shop", producer=ProducerId(1, 2), in_order=True)
    first, second = (
        encode_messages([Outgoing(body=b"x", order_key="k")], origin=origin, first_sequence=number)
        for number in range(2)
    )
    async with node() as url, ternmq.connect(url, app="shop") as mq:
        connection = await mq.cluster.broker("main").get()
        await connection.call(Command.PUBLISH, second)
        with pytest.raises(SequenceTooOld):
            await connection.call(Command.PUBLISH, first)

        answer = await connection.call(Command.PUBLISH, second)
        assert PUBLISHED.unpack(answer)[-1] & PUBLISHED_DUPLICATE
