"""The client half of `benchmarks.versions`: runs with the source tree of either version.

Started as a script with `PYTHONPATH` set to a tree, so it uses nothing but names that every release
has. Reads a workload and a count from each line of stdin, and answers with a line of JSON: how long
each call took, how much CPU this process used.
"""

import asyncio
import json
import resource
import sys
import time
from typing import Any

import ternmq

BODY = b"x" * 100
LIST = 4_000


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _send(mq: Any, topic: str, took: list[float]) -> None:
    began = time.perf_counter()
    await mq.send(topic, BODY)
    took.append(time.perf_counter() - began)


async def lone(mq: Any, count: int, took: list[float]) -> int:
    """One caller, one message at a time."""
    for _ in range(count):
        await _send(mq, "lone", took)
    return count


async def callers(mq: Any, count: int, took: list[float]) -> int:
    """64 callers at once, one message at a time each."""

    async def caller() -> None:
        for _ in range(count // 64):
            await _send(mq, "callers", took)

    await asyncio.gather(*(caller() for _ in range(64)))
    return count // 64 * 64


async def bulk(mq: Any, count: int, took: list[float]) -> int:
    """Lists of four thousand, eight calls on their way."""
    bodies = [BODY] * LIST

    async def caller() -> None:
        for _ in range(count // LIST // 8):
            began = time.perf_counter()
            await mq.send_many("bulk", bodies)
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(caller() for _ in range(8)))
    return count // LIST // 8 * LIST * 8


async def consume(mq: Any, count: int, took: list[float]) -> int:
    """Whatever `lone` and `callers` left, one message and one ack at a time."""
    await mq.send_many("consume", [BODY] * count)
    done = 0
    async with mq.consumer("consume", group="g", prefetch=1_000) as consumer:
        async for message in consumer:
            message.ack()
            done += 1
            if done == count:
                break
        await consumer.flush()
    return done


WORKLOADS = {"lone": lone, "callers": callers, "bulk": bulk, "consume": consume}


async def serve(url: str) -> None:
    """Until stdin ends."""
    loop = asyncio.get_running_loop()
    async with ternmq.connect(url, app="bench") as mq:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            name, count = line.split()
            took: list[float] = []
            cpu, began = _cpu(), time.perf_counter()
            done = await WORKLOADS[name](mq, int(count), took)
            fields = {
                "done": done,
                "cpu": _cpu() - cpu,
                "seconds": time.perf_counter() - began,
                "took": took,
            }
            print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1]))
