"""Objects in, objects out."""

import pickle
from typing import Any

import pytest

import ternmq
from ternmq.client.codecs.codec import decode_body, encode_body, find_codec
from ternmq.core.errors import BadRequest
from tests.unit.client.fake_broker import FakeBroker


class Pickled:
    """A codec of one's own."""

    def encode(self, value: Any, /) -> bytes:
        return pickle.dumps(value)

    def decode(self, body: bytes, /) -> Any:
        return pickle.loads(body)


@pytest.mark.parametrize("codec", ["json", "msgpack", Pickled()])
async def test_values_come_back_as_they_were(broker: FakeBroker, codec: Any) -> None:
    value = {"amount": 12, "items": ["a", None, 0.5]}
    async with ternmq.connect(broker.url, codec=codec) as mq:
        await mq.send("orders", value)
        await mq.send_many("orders", [value, value])
        mq.send_nowait("orders", value)
        await mq.flush()
        async with mq.consumer("orders", group="billing") as consumer:
            values = [(await anext(consumer)).value for _ in range(4)]
        assert [message.value async for message in mq.read("orders")] == values

    assert values == [value] * 4


async def test_one_call_may_have_a_codec_of_its_own(broker: FakeBroker, mq: ternmq.Client) -> None:
    await mq.send("orders", [1], codec="json")
    async with mq.consumer("orders", group="billing", codec="json") as consumer:
        batch = await anext(consumer.batches())

        assert batch.bodies == [b"[1]"]
        assert batch.values == [[1]]


async def test_a_call_may_leave_the_codec_out(broker: FakeBroker) -> None:
    async with ternmq.connect(broker.url, codec="json") as mq:
        await mq.send("orders", b"raw", codec="bytes")
        [message] = [message async for message in mq.read("orders", codec="bytes")]

    assert message.value == message.body == b"raw"


def test_a_body_that_does_not_decode_says_so() -> None:
    with pytest.raises(BadRequest, match="could not decode a body of 3 bytes"):
        decode_body(find_codec("json"), b"{{{")


def test_a_codec_must_make_bytes() -> None:
    class Wrong:
        def encode(self, value: Any, /) -> Any:
            return "text"

        def decode(self, body: bytes, /) -> Any:
            return body

    with pytest.raises(BadRequest, match="a body is bytes"):
        encode_body(Wrong(), 1)
