"""Handlers with typed parameters: bodies are checked, bad ones rejected, results sent on.

    python examples/19_typed_handlers.py

Shows: the type of a parameter decides how a body is read, `Depends`, `reject_on`, `publish`, a
`Router`, `app.deliver` for tests without a node. In production: `tern run module:app --workers 4`.
"""

import asyncio
import os
from typing import Annotated

import msgspec

import ternmq
from ternmq import Depends

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
app = ternmq.App(URL, app="shop")
shop = ternmq.Router(prefix="example.typed.")
app.include(shop)
printed = asyncio.Event()


class Order(msgspec.Struct):
    number: int
    total: float


async def currency() -> str:
    return "EUR"


@shop.subscriber("paid", group="billing", publish="billed", reject_on=LookupError)
async def bill(order: Order, unit: Annotated[str, Depends(currency)]) -> str:
    if order.number == 3:
        raise LookupError("order 3 is of nobody")  # Trying again does not make a customer.
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
        await mq.send_many(
            "example.typed.paid", [Order(1, 5), "no order", Order(3, 7), Order(4, 9)]
        )
        async with app:
            await printed.wait()
        (line,) = await mq.admin.ledger("example.typed.paid", "billing")
        print(f"ledger  total {line.total} = acked {line.acked} + dead {line.dead}")


asyncio.run(main())
