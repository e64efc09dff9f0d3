"""Repeats of a batch: what is stored stays stored, whatever is allowed by now (Q2, Q8)."""

import asyncio

import pytest

import ternmq
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.half import HalfInfo, pack_info
from ternmq.core.errors import BadRequest, Paused, SequenceTooOld, TooLarge, Unauthorized
from ternmq.core.ids import ProducerId
from ternmq.testing import node
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.messages.transactions import HalfStored
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack


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


def sent_to(topic: str, *, delay_ms: int | None = None, number: int = 0) -> bytearray:
    """Message 0, or another one, of one and the same producer."""
    origin = Origin(topic=topic, app="shop", producer=ProducerId(1, 2))
    own_id = b"%s %d" % (topic.encode(), number)
    rows = [Outgoing(body=topic.encode(), delay_ms=delay_ms, explicit_id=own_id)]
    return encode_messages(rows, origin=origin, first_sequence=number)


async def test_of_two_batches_under_the_same_numbers_at_the_same_time_one_is_stored() -> None:
    """Whichever comes first, one of them by its ids; the other is refused, and is not there."""
    async with node() as url, ternmq.connect(url, app="shop") as mq:
        for topic in ("once", "plain"):
            await mq.admin.create_topic(topic)
        connection = await mq.cluster.broker("main").get()
        outcomes: set[tuple[bool, bool]] = set()
        for number in range(40):
            once = connection.call(Command.PUBLISH_ONCE, sent_to("once", number=number))
            storing = asyncio.ensure_future(once)
            await asyncio.sleep(number % 8 * 0.0005)
            plain = connection.call(Command.PUBLISH, sent_to("plain", number=number))
            found = await asyncio.gather(storing, plain, return_exceptions=True)
            outcomes.add((found[0].__class__ is BadRequest, found[1].__class__ is BadRequest))
        stored = [len([one async for one in mq.read(topic)]) for topic in ("once", "plain")]

    assert outcomes <= {(True, False), (False, True)}
    assert sum(stored) == 40


@pytest.mark.parametrize("first", [Command.PUBLISH, Command.PUBLISH_ONCE])
@pytest.mark.parametrize("second", [Command.PUBLISH, Command.PUBLISH_ONCE])
async def test_numbers_that_somebody_used_for_another_topic_are_refused_and_not_called_stored(
    first: Command, second: Command
) -> None:
    """A producer's id stands in its messages' ids: who reads one could send junk under the next
    number, and the producer would be told that its own message is stored (Q2)."""
    async with node() as url, ternmq.connect(url, app="shop") as mq:
        await mq.admin.create_topic("junk")
        await mq.admin.create_topic("orders")
        connection = await mq.cluster.broker("main").get()
        await connection.call(first, sent_to("junk"))
        with pytest.raises(BadRequest, match=r"another topic than 'orders'.*not stored"):
            await connection.call(second, sent_to("orders"))
        assert [message.body async for message in mq.read("orders")] == []

        if first is second is Command.PUBLISH:
            answer = await connection.call(Command.PUBLISH, sent_to("junk"))
            assert PUBLISHED.unpack(answer)[-1] & PUBLISHED_DUPLICATE, "a true repeat"


async def test_numbers_of_a_delayed_message_of_another_topic_are_refused_too() -> None:
    async with node() as url, ternmq.connect(url, app="shop") as mq:
        await mq.admin.create_topic("junk")
        await mq.admin.create_topic("orders")
        connection = await mq.cluster.server("main", "delay").get()
        await connection.call(Command.PUBLISH, sent_to("junk", delay_ms=60_000))
        with pytest.raises(BadRequest, match=r"another topic than 'orders'.*not stored"):
            await connection.call(Command.PUBLISH, sent_to("orders", delay_ms=60_000))


async def test_a_half_message_to_another_topic_is_no_repeat_within_its_transaction() -> None:
    half = pack_info(HalfInfo(transaction=bytes(16)))

    def staged(topic: str) -> bytearray:
        origin = Origin(topic=topic, app="shop", producer=ProducerId(1, 2))
        rows = [Outgoing(body=b"x")]
        return encode_messages(rows, origin=origin, first_sequence=0, transaction=half)

    async with node() as url, ternmq.connect(url, app="shop") as mq:
        connection = await mq.cluster.broker("main").get()
        await connection.call(Command.HALF, staged("junk"))
        with pytest.raises(BadRequest, match=r"another topic than 'orders'.*not stored"):
            await connection.call(Command.HALF, staged("orders"))
        again = await connection.call(Command.HALF, staged("junk"))
        assert unpack(again, HalfStored).duplicate
