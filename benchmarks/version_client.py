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


async def _in_turns(callers: int, count: int, each: Any) -> int:
    """`each(number)` for every number below `count`, by so many callers at once."""
    left = count

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await each(left)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return count


async def topics(mq: Any, count: int, took: list[float]) -> int:
    """A thousand topics, 512 callers, lists of one message."""
    bodies = [BODY]
    return await _in_turns(512, count, lambda n: mq.send_many(f"topic-{n % 1_000}", bodies))


async def pipelined(mq: Any, count: int, took: list[float]) -> int:
    """One call for each message, nobody waits for it; all are confirmed in the end."""
    for first in range(0, count, LIST):
        for _ in range(min(LIST, count - first)):
            mq.send_nowait("pipelined", BODY)
        await asyncio.sleep(0)
        if mq.stats().buffered > 50_000:
            await mq.flush()
    await mq.flush()
    assert mq.stats().failed == 0
    return count


async def plain(mq: Any, count: int, took: list[float]) -> int:
    """64 callers with a topic each, lists of one message: beside `half`."""
    return await _in_turns(64, count, lambda n: mq.send_many(f"plain-{n % 64}", [BODY]))


async def half(mq: Any, count: int, took: list[float]) -> int:
    """The same in transactions of one message."""

    async def each(number: int) -> None:
        async with mq.transaction() as tx:
            await tx.send_many(f"plain-{number % 64}", [BODY])

    return await _in_turns(64, count, each)


async def connections(mq: Any, count: int, took: list[float]) -> int:
    """500 connections, each sends one message after the other."""
    if not _others:
        _others.extend([await ternmq.connect(sys.argv[1], app="bench") for _ in range(500)])
        await asyncio.gather(*(other.send("connections", BODY) for other in _others))

    async def caller(other: Any) -> None:
        for _ in range(count // 500):
            await other.send("connections", BODY)

    await asyncio.gather(*(caller(other) for other in _others))
    return count // 500 * 500


async def awaited(mq: Any, count: int, took: list[float]) -> int:
    """One consumer that waits for the answer to each ack."""
    await mq.send_many("awaited", [BODY] * count)
    done = 0
    async with mq.consumer("awaited", group="g", prefetch=1_000) as consumer:
        async for message in consumer:
            began = time.perf_counter()
            await message.ack()
            took.append(time.perf_counter() - began)
            done += 1
            if done == count:
                break
    return done


async def fine(mq: Any, count: int, took: list[float]) -> int:
    """As `failing`, and none fails."""
    return await _handle(mq, "fine", count, -1)


async def failing(mq: Any, count: int, took: list[float]) -> int:
    """A bare loop; every hundredth message fails once."""
    return await _handle(mq, "failing", count, 0)


async def _handle(mq: Any, topic: str, count: int, chosen: int) -> int:
    await mq.send_many(topic, [BODY] * count)
    done = 0
    async with mq.consumer(topic, group="g", prefetch=20_000) as consumer:
        async for message in consumer:
            if message.sequence % 100 == chosen and message.attempt == 1:
                message.retry(after=0.05)
                continue
            message.ack()
            done += 1
            if done == count:
                break
        await consumer.flush()
    return done


_others: list[Any] = []
WORKLOADS = {
    work.__name__: work
    for work in (
        lone,
        callers,
        bulk,
        consume,
        topics,
        connections,
        pipelined,
        plain,
        half,
        awaited,
        fine,
        failing,
    )
}


async def serve(url: str) -> None:
    """Until stdin ends."""
    loop = asyncio.get_running_loop()
    async with ternmq.connect(url, app="bench") as mq:
        mq.transaction_checker(lambda question: "commit")
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
