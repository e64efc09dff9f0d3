"""Ordered load from a process of its own: numbered messages of many order keys, one after another.

    python -m tests.integration.slot_load URL NAME KEYS

Sends `NAME/key number` for as long as stdin is open, several keys at once, each message only when
the one before it of its key is stored. Then prints, as JSON, how many were stored of each key.
"""

import asyncio
import json
import sys

import ternmq

PAUSE_S = 0.02
"""So that consumers keep up: a backlog has to be settled before a slot can move on."""


async def send_all(mq: ternmq.Client, key: str, done: asyncio.Event) -> int:
    number = 0
    while not done.is_set():
        await mq.send("orders", f"{key} {number}".encode(), order_key=key)
        number += 1
        await asyncio.sleep(PAUSE_S)
    return number


async def main(url: str, name: str, keys: int) -> None:
    done = asyncio.Event()
    async with ternmq.connect(url, app=name) as mq:
        names = [f"{name}/{at}" for at in range(keys)]
        sending = [asyncio.create_task(send_all(mq, key, done)) for key in names]
        await asyncio.to_thread(sys.stdin.read)
        done.set()
        counts = await asyncio.gather(*sending)
    sys.stdout.write(json.dumps(dict(zip(names, counts, strict=True))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
