"""FastAPI: an order and its message in one transaction; a request that fails after it has "sent".

python examples/11_fastapi_outbox.py
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import ternmq
from ternmq.outbox import Outbox

URL, TOPIC = os.environ.get("TERN_URL", "tern://127.0.0.1:7700"), "example.fastapi"
engine = create_async_engine(f"sqlite+aiosqlite:///{tempfile.mkdtemp()}/shop.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await Outbox(engine).create_tables()
    mq = ternmq.connect(URL, app="shop", lazy=True)  # Begins also while no broker is there.
    async with mq, Outbox(engine, mq) as outbox:
        app.state.mq, app.state.outbox = mq, outbox
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}/pay")
async def pay(order: int, amount: int) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("INSERT INTO orders VALUES (:id)"), {"id": order})
        await app.state.outbox.send(session, TOPIC, b"order %d" % order)
        if amount <= 0:
            raise HTTPException(422, "nothing to pay")  # No order then, and no message.


async def main() -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE orders (id INTEGER)"))
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    async with app.router.lifespan_context(app), client:
        for order, amount in ((1, 10), (2, 0), (3, 30)):
            said = await client.post(f"http://shop/orders/{order}/pay?amount={amount}")
            print(f"paid    order {order}: {said.status_code}")
        await app.state.outbox.aflush()
        print([message.body async for message in app.state.mq.read(TOPIC, start="earliest")])
        await app.state.mq.admin.delete_topic(TOPIC)
    await engine.dispose()


asyncio.run(main())
