"""Handlers in batches, with time limits, and settled by hand.

    python examples/08_handlers.py

Shows: `batch=True` (returning acks all, raising retries all but what was settled one by one),
`auto_ack=False`, and `timeout=` on a coroutine that hangs.
"""

import asyncio
import os
import threading

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.handlers"

app = ternmq.App(URL, app="shop", drain_timeout=10)
accepted: list[bytes] = []
finished: list[int] = []
handled = threading.Semaphore(0)


@app.subscriber(TOPIC, group="database", batch=True, batch_size=100, batch_wait=0.05)
def insert(batch: ternmq.MessageBatch) -> None:
    print(f"insert  {len(batch)} rows at once")  # A thread: a blocking INSERT is fine.
    handled.release(len(batch))


@app.subscriber(TOPIC, group="by-hand", auto_ack=False, concurrency=6)
async def accept(message: ternmq.Message) -> None:
    if message.body == b"order 5":
        await message.reject("not ours")  # Awaited: the broker has it.
    else:
        await message.ack()
        accepted.append(message.body)
    handled.release()


@app.subscriber(TOPIC, group="bank", timeout=0.2, retry_after=0.1, concurrency=6)
async def pay(message: ternmq.Message) -> None:
    if message.body == b"order 3" and message.attempt == 1:
        await asyncio.sleep(3600)  # Cancelled after 0.2 s, and comes again.
    finished.append(message.attempt)
    handled.release()


async def main() -> None:
    async with app:  # Instead of app.run().
        await app.mq.send_many(TOPIC, [f"order {n}".encode() for n in range(6)])
        for _ in range(3 * 6):
            await asyncio.to_thread(handled.acquire)
    print(f"by hand {len(accepted)} acked, 1 rejected")
    print(f"bank    attempts {sorted(finished)}")
    async with ternmq.connect(URL, app="shop") as mq:
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
