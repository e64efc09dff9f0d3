"""What type checkers make of the public names; read by mypy and pyright, run by nobody."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, assert_type

import ternmq
from ternmq import sync


class Order:
    """Stands for a type of an application."""

    number: int


async def sending(mq: ternmq.Client) -> None:
    assert_type(await mq.send("orders", b"1", key="o-1", delay=timedelta(hours=1)), ternmq.Receipt)
    assert_type(await mq.send_many("orders", [b"1"]), ternmq.BatchReceipt)
    assert_type((await mq.send_many("orders", [b"1"]))[0], ternmq.Receipt)
    assert_type(mq.send_nowait("orders", b"1"), None)
    async with mq.transaction() as transaction:
        assert_type(transaction, ternmq.Transaction)


async def consuming(mq: ternmq.Client) -> None:
    async with mq.consumer("orders", group="billing") as consumer:
        assert_type(consumer, ternmq.Consumer)
        async for message in consumer:
            assert_type(message, ternmq.Message)
            assert_type(message.body, bytes)
            assert_type(message.key, str | None)
            assert_type(message.decode(Order), Order)
            assert_type(message.decode(Order).number, int)
            message.ack()
    async for message in mq.read("orders"):
        assert_type(message, ternmq.Message)
    assert_type(await mq.admin.groups("orders"), list[ternmq.Group])


app = ternmq.App("tern://127.0.0.1:7700", app="shop")
router = ternmq.Router(prefix="shop.")


@app.subscriber("orders", group="billing", concurrency=16, reject_on=(ValueError,))
async def bill(message: ternmq.Message, note: str = "") -> int:
    return message.sequence


@router.subscriber(["orders", "refunds"], group="stock", publish="moved")
def reserve(order: Order) -> str:
    return str(order.number)


def handlers_keep_their_types() -> None:
    kept: Callable[[Order], str] = reserve
    assert_type(kept(Order()), str)
    assert_type(reserve(Order()), str)


async def testing_handlers() -> None:
    delivered = await app.deliver({"number": 1}, topic="orders", key="o-1")
    assert_type(delivered, ternmq.LocalDelivery)
    assert_type(delivered.result, Any)


def blocking() -> None:
    with sync.connect("tern://127.0.0.1:7700", app="shop") as mq:
        assert_type(mq.send("orders", b"1"), ternmq.Receipt)
        with mq.consumer("orders", group="billing") as consumer:
            for message in consumer:
                assert_type(message, ternmq.Message)
