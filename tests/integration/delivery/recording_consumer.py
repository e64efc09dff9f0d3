"""A consumer that writes down what it handles before it acks, as a process of its own:

    python -m tests.integration.delivery.recording_consumer URL TOPIC LOG KIND [NAME=VALUE …]

KIND is `group` (NAME=VALUE are options of `mq.consumer`), `slow` (the same) or `broadcast`. Each
line is `BODY ATTEMPT`, appended whole, so several of these may share a log and its order is the
order in time. A body that begins with "fail" is given back twice before it is handled, and said
each time. A slow one takes its time for each and waits for its ack; its lines are `BODY begun`,
then `BODY acked` or `BODY late`.
"""

import asyncio
import os
import sys
from typing import Any

import ternmq

FAILURES = 2
PREFETCH = 50
WORK_S = 0.05


def note(log: int, *words: object) -> None:
    os.write(log, (" ".join(map(str, words)) + "\n").encode())


async def consume(mq: ternmq.Client, topic: str, log: int, options: dict[str, Any]) -> None:
    async with mq.consumer(topic, **options) as consumer:
        note(log, "ready", 0)
        async for message in consumer:
            note(log, message.body.decode(), message.attempt)
            if message.body.startswith(b"fail") and message.attempt <= FAILURES:
                message.retry(after=0.05)
            else:
                message.ack()


async def consume_slowly(mq: ternmq.Client, topic: str, log: int, options: dict[str, Any]) -> None:
    async with mq.consumer(topic, **options) as consumer:
        async for message in consumer:
            note(log, message.body.decode(), "begun")
            await asyncio.sleep(WORK_S)
            try:
                await message.ack()
            except ternmq.LeaseLost:
                note(log, message.body.decode(), "late")
            else:
                note(log, message.body.decode(), "acked")


async def listen(mq: ternmq.Client, topic: str, log: int) -> None:
    async with mq.broadcast(topic) as every:
        note(log, "ready", 0)
        async for message in every:
            note(log, message.body.decode(), 1)


async def main(url: str, topic: str, path: str, kind: str, *options: str) -> None:
    log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    async with ternmq.connect(url, app="teller") as mq:
        if kind == "broadcast":
            await listen(mq, topic, log)
        chosen: dict[str, Any] = dict(option.split("=", 1) for option in options)
        if "ordered" in chosen:
            chosen["ordered"] = True
        chosen["prefetch"] = PREFETCH
        await (consume_slowly if kind == "slow" else consume)(mq, topic, log, chosen)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
