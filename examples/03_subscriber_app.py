"""Handlers by decorator: returning acks, raising gives the message back for a retry.

    python examples/03_subscriber_app.py

Shows: `App`, `subscriber` with a coroutine and with a plain function (which runs in threads).
A service ends with `app.run()`, which runs until SIGTERM; this one stops when its work is done.
"""

import asyncio
import os
import threading

import ternmq

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.app"

app = ternmq.App(URL, app="shop")
billed: list[int] = []
all_billed = asyncio.Event()
mailed = threading.Semaphore(0)


@app.subscriber(TOPIC, group="billing", concurrency=16, retry_after=0.1)
async def bill(message: ternmq.Message) -> None:
    if message.sequence == 3 and message.attempt == 1:
        raise ConnectionError("the bank does not answer")  # Comes again after 0.1 s.
    billed.append(message.sequence)
    if message.attempt > 1:
        print(f"billed  message {message.sequence} at attempt {message.attempt}")
    if len(billed) == 10:
        all_billed.set()


@app.subscriber(TOPIC, group="mails", concurrency=4)
def mail(message: ternmq.Message) -> None:
    mailed.release()  # Blocking calls are fine here: this is a thread.


async def main() -> None:
    async with app:  # Instead of app.run().
        await app.mq.send_many(TOPIC, [b"order"] * 10)
        for _ in range(10):
            await asyncio.to_thread(mailed.acquire)
        await all_billed.wait()
        print(f"billed  {sorted(billed)}")
        print("mailed  10")
    async with ternmq.connect(URL, app="shop") as mq:
        for line in await mq.admin.ledger(TOPIC):
            print(f"ledger  {line.group}: total {line.total} = acked {line.acked}")
        await mq.admin.delete_topic(TOPIC)


asyncio.run(main())
