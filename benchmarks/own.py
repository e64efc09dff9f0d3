"""What only TernMQ is asked: the figures of its own issue that no peer workload covers.

Each measurement starts from a running node and returns plain fields. Publishing and consuming run
in processes of their own, like the peers' clients, so CPU is counted apart.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds

_spawn = multiprocessing.get_context("spawn")
CALLS = 8
Fields = dict[str, Any]


def in_process(work: Callable[..., Any], *arguments: Any, deadline: float = 120.0) -> Any:
    """Run `work(*arguments)` in a fresh process and return what it returns."""
    with _spawn.Pool(1) as pool:
        return pool.apply_async(work, arguments).get(timeout=deadline)


def _run(url: str, work: Callable[[Any], Any]) -> Any:
    import uvloop

    import ternmq

    async def whole() -> Any:
        async with ternmq.connect(url, app="bench") as mq:
            return await work(mq)

    return uvloop.run(whole())


def _bodies(count: int, size: int, compressible: bool) -> list[bytes]:
    if not compressible:
        return [os.urandom(size) for _ in range(count)]
    words = [b"order", b"paid", b"customer", b"amount", b"currency", b"2026-11-15", b"EUR", b"ok"]
    chance = random.Random(1)
    line = b" ".join(chance.choice(words) for _ in range(size))
    return [b"%08d " % row + line[: size - 9] for row in range(count)]


def publish_load(
    url: str, pid: int, topics: int, count: int, batch: int, size: int, compressible: bool
) -> Fields:
    """`count` messages in lists of `batch`, spread over topics, eight calls on their way."""

    async def work(mq: Any) -> Fields:
        bodies = _bodies(batch, size, compressible)
        names = [f"load-{batch}-{size}-{number}" for number in range(topics)]
        await asyncio.gather(*(mq.send_many(name, bodies) for name in names))
        left = count // batch

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await mq.send_many(names[left % topics], bodies)

        broker, client, began = tree_cpu_seconds([pid]), own_cpu_seconds(), time.monotonic()
        await asyncio.gather(*(caller() for _ in range(max(CALLS, min(512, 4096 // batch)))))
        took = time.monotonic() - began
        return {
            "rate": count / took,
            "mb_s": count * size / took / 1e6,
            "client_cpu_s_per_million": (own_cpu_seconds() - client) / count * 1e6,
            "broker_cpu_s_per_million": (tree_cpu_seconds([pid]) - broker) / count * 1e6,
        }

    return dict(_run(url, work))


def publish(
    url: str,
    pid: int,
    *,
    topics: int = 1,
    count: int = 6_000_000,
    batch: int = 4_000,
    size: int = 100,
    compressible: bool = False,
) -> Fields:
    """One producer process."""
    return dict(in_process(publish_load, url, pid, topics, count, batch, size, compressible))


def _many_connections(url: str, connections: int, seconds: float, gate: Any, out: Any) -> None:
    import uvloop

    import ternmq

    async def whole() -> None:
        body = b"x" * 100
        clients = [await ternmq.connect(url, app="bench") for _ in range(connections)]
        await asyncio.gather(*(mq.send("connections", body) for mq in clients))
        await asyncio.to_thread(gate.wait)
        done = 0
        client, began = own_cpu_seconds(), time.monotonic()

        async def caller(mq: Any) -> None:
            nonlocal done
            while time.monotonic() - began < seconds:
                await mq.send("connections", body)
                done += 1

        await asyncio.gather(*(caller(mq) for mq in clients))
        out.put((done, time.monotonic() - began, own_cpu_seconds() - client))
        await asyncio.gather(*(mq.close() for mq in clients))

    uvloop.run(whole())


def connections(url: str, pid: int, *, count: int = 500, seconds: float = 4.0) -> Fields:
    """`count` connections in two processes, each sends one message after the other."""
    gate, out = _spawn.Barrier(3, timeout=60), _spawn.Queue()
    workers = [
        _spawn.Process(target=_many_connections, args=(url, count // 2, seconds, gate, out))
        for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    gate.wait()
    broker = tree_cpu_seconds([pid])
    parts = [out.get(timeout=seconds + 60) for _ in workers]
    for worker in workers:
        worker.join(10)
    done = sum(part[0] for part in parts)
    return {
        "rate": sum(part[0] / part[1] for part in parts),
        "client_cpu_us": sum(part[2] for part in parts) / done * 1e6,
        "broker_cpu_us": (tree_cpu_seconds([pid]) - broker) / done * 1e6,
    }


def backlog(url: str, pid: int, *, count: int = 10_000_000) -> Fields:
    """Publish rate on an almost empty log, and again behind `count` unread messages."""

    def best() -> float:
        runs = [publish(url, pid, topics=1, count=1_500_000)["rate"] for _ in range(3)]
        return float(max(runs))

    empty = best()
    for _ in range(count // 2_500_000):
        publish(url, pid, topics=1, count=2_500_000)
    behind = best()
    return {"empty_rate": empty, "behind_rate": behind, "ratio": behind / empty, "unread": count}


def bodies_of_batches(url: str, pid: int) -> dict[str, Fields]:
    """Reported, without a target: small batches, many topics, compressible bodies."""
    load = partial(publish, url, pid)
    return {
        "1,000 topics, batches of 1": load(topics=1_000, count=60_000, batch=1),
        "1,000 topics, batches of 10": load(topics=1_000, count=400_000, batch=10),
        "1 KiB compressible, zstd, batches of 1,000": load(
            count=1_000_000, size=1024, compressible=True
        ),
        "1 KiB random, batches of 1,000": load(count=500_000, size=1024),
    }
