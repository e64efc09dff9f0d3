"""Handlers with typed parameters: bodies are checked, bad ones rejected, results sent on.

    python examples/19_typed_handlers.py

Shows: types that decide how a body is read, `Depends`, `reject_on`, `publish`, `app.deliver`.
"""

import asyncio
import os
from typing import Annotated

import msgspec

import ternmq

app = ternmq.App(URL := os.environ.get("TERN_URL", "tern://127.0.0.1:7700"), app="shop")
shop = ternmq.Router(prefix="example.typed.")
app.include(shop)
printed = asyncio.Event()


class Order(msgspec.Struct):
    number: int
    total: float


def currency() -> str:
    return "EUR"


@shop.subscriber("paid", group="billing", publish="billed", reject_on=LookupError)
async def bill(order: Order, unit: Annotated[str, ternmq.Depends(currency)]) -> str:
    if order.number == 3:  # Trying again does not make a customer.
        raise LookupError("nobody's")
    return f"order {order.number}: {order.total:.2f} {unit}"


@shop.subscriber("billed", group="printing")
async def print_bill(text: str) -> None:
    print(f"printed {text}")
    if "order 4" in text:
        printed.set()


async def main() -> None:
    tried = await app.deliver({"number": 1, "total": "much"}, topic="example.typed.paid")
    print(f"tried   {tried.verdict}: {tried.reason}")
    async with ternmq.connect(URL, app="shop", codec="json") as mq:
        orders = (Order(1, 5), "no order", Order(3, 7), Order(4, 9))
        await mq.send_many("example.typed.paid", orders)
        async with app:
            await printed.wait()
        (line,) = await mq.admin.ledger("example.typed.paid", "billing")
        print(f"ledger  total {line.total} = acked {line.acked} + dead {line.dead}")
        for topic in ("paid", "billed"):
            await mq.admin.delete_topic(f"example.typed.{topic}")


asyncio.run(main())
