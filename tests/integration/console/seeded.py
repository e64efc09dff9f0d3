"""A cluster with something of everything: topics, groups, dead letters, delayed and half messages.

Names and bodies that others write are as bad as they come: markup, control characters, other
scripts, 4 MB. Made the same way every time.
"""

import msgspec

from ternmq import Outgoing, connect
from ternmq.client.client import Client

HOSTILE = "<script>alert(1)</script>"
CHINESE = "订单-支付"
RIGHT_TO_LEFT = "הזמנה"
CONTROL = "a\x00b\x1b[31mc\x7f"
BODIES = (
    b'{"order": 17, "amount": 12.5, "items": ["book", "pen"]}',
    HOSTILE.encode(),
    CHINESE.encode() * 5,
    CONTROL.encode(),
    msgspec.msgpack.encode({"order": 18, "by": b"\x01\x02"}),
    bytes(range(256)),
    b"",
    b'{"specversion": "1.0", "id": "1", "type": "paid", "source": "/shop"}',
)


async def seed(url: str, *, large: bool = True, password: str | None = None) -> dict[str, str]:
    """Fill it; returns ids of some messages."""
    async with connect(url, app="shop", password=password) as mq:
        for topic in ("order.paid", "order.shipped", "mail.outgoing", "empty.topic"):
            await mq.admin.create_topic(topic)
        ids = await _orders(mq, large=large)
        await _consume(mq)
        await _later(mq)
        await _half(mq)
        return ids


async def _orders(mq: Client, *, large: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for at, body in enumerate(BODIES):
        receipt = await mq.send(
            "order.paid",
            body,
            key=(HOSTILE, CHINESE, RIGHT_TO_LEFT, "o-1")[at % 4],
            tag="vip" if at % 2 else HOSTILE,
            properties={"amount": at, "note": HOSTILE},
        )
        found[f"body-{at}"] = receipt.id
    rows = [
        Outgoing(body=b'{"order": %d}' % at, key=f"o-{at}", properties={"amount": at % 50})
        for at in range(2_000)
    ]
    await mq.send_many("order.paid", rows)
    await mq.send_many("order.shipped", [b"shipped %d" % at for at in range(300)])
    if large:
        receipt = await mq.send("mail.outgoing", b"x" * 4_000_000 + CHINESE.encode())
        found["large"] = receipt.id
    return found


async def _consume(mq: Client) -> None:
    """One group is done, one is in the middle of it, one failed with some."""
    async with mq.consumer("order.shipped", group="tracking") as consumer:
        seen = 0
        async for message in consumer:
            message.ack()
            seen += 1
            if seen == 300:
                break
    async with mq.consumer("order.paid", group="billing", prefetch=400) as consumer:
        seen = 0
        async for message in consumer:
            if seen % 20 == 3:
                failing(message, seen)
            else:
                message.ack()
            seen += 1
            if seen == 400:
                break
        await consumer.flush()
    await mq.admin.create_group("order.paid", "analytics")


def failing(message: object, at: int) -> None:
    try:
        if at % 40 == 3:
            raise ValueError(f"order {at} has no amount")
        raise ConnectionError(f"card service 10.0.0.{at}: {HOSTILE}")
    except Exception as error:
        message.reject("not payable", error=error)  # type: ignore[attr-defined]


async def _later(mq: Client) -> None:
    for at in range(40):
        await mq.send("mail.outgoing", b"remember", delay=1_800.0 + 2_400 * at, key=f"m-{at}")


async def _half(mq: Client) -> None:
    staged = mq.detached("nightly", attempt=1)
    await staged.send("order.shipped", b"half of it")
