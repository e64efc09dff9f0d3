"""Half messages beside plain ones, in the same run: what a transaction costs (R11).

For each batch size the same number of callers, each with a topic of its own, first `send_many`
plain lists, then do the same in transactions: a half batch and its commit, so two syncs for one,
shared with what others store at that moment. Runs alternate, the best of each counts. The ratio is
what travels between machines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.own import in_process
from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.peers.ternmq import TernPeer

RATIO_MAX = 3.0
"""A transaction takes at most so many times as long as a plain send of the same messages."""
BODY_SIZE = 100
ROUNDS = 3
SHAPES = {  # Messages in a batch: callers at one time, batches of all of them together.
    1: (64, 6_000),
    100: (16, 2_000),
    1_000: (8, 600),
}
Fields = dict[str, Any]
Send = Callable[[Any, str, list[bytes]], Awaitable[object]]


async def _plain(mq: Any, topic: str, bodies: list[bytes]) -> None:
    await mq.send_many(topic, bodies)


async def _half(mq: Any, topic: str, bodies: list[bytes]) -> None:
    async with mq.transaction() as tx:
        await tx.send_many(topic, bodies)


async def _timed(mq: Any, pid: int, send: Send, shape: tuple[int, int, int]) -> Fields:
    size, callers, count = shape
    bodies = [os.urandom(BODY_SIZE) for _ in range(size)]
    left, waits = count, []

    async def caller(topic: str) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await send(mq, topic, bodies)
            waits.append(time.perf_counter() - began)

    # A topic of its own for each caller: plain sends to one topic would share batches.
    topics = [f"transactions-{number}" for number in range(callers)]
    await asyncio.gather(*(send(mq, topic, bodies) for topic in topics))
    broker, client, began = tree_cpu_seconds([pid]), own_cpu_seconds(), time.monotonic()
    await asyncio.gather(*(caller(topic) for topic in topics))
    took, rows = time.monotonic() - began, len(waits) * size
    return {
        "rate": rows / took,
        "p50_ms": median(waits) * 1000,
        "client_cpu_us": (own_cpu_seconds() - client) / rows * 1e6,
        "broker_cpu_us": (tree_cpu_seconds([pid]) - broker) / rows * 1e6,
    }


def _work(url: str, pid: int, part: float) -> dict[str, Fields]:
    import uvloop

    import ternmq

    async def whole() -> dict[str, Fields]:
        found: dict[str, Fields] = {}
        async with ternmq.connect(url, app="bench") as mq:
            mq.transaction_checker(lambda question: "commit")
            for size, (callers, count) in SHAPES.items():
                shape = (size, callers, max(callers, int(count * part)))
                runs: dict[str, list[Fields]] = {"plain": [], "half": []}
                for _ in range(ROUNDS):
                    runs["plain"].append(await _timed(mq, pid, _plain, shape))
                    runs["half"].append(await _timed(mq, pid, _half, shape))
                best = {what: max(of, key=lambda run: run["rate"]) for what, of in runs.items()}
                found[str(size)] = {**best, "ratio": best["plain"]["rate"] / best["half"]["rate"]}
        return found

    return uvloop.run(whole())


def measure(url: str, pid: int, *, quick: bool = False) -> dict[str, Fields]:
    """By batch size: plain and half figures, and their ratio. The client has its own process."""
    return dict(in_process(_work, url, pid, 0.2 if quick else 1.0, deadline=300.0))


def targets(found: dict[str, Fields]) -> list[tuple[str, float, float, str]]:
    """Lines for the report: what was measured, what was asked."""
    return [
        (f"plain / half messages, batches of {size}", one["ratio"], RATIO_MAX, "at most")
        for size, one in found.items()
    ]


def main() -> None:
    """Only this, without the rest of `make bench`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        node.start(Path(directory))
        try:
            found = measure(node.url(), node.pids()[0], quick=options.quick)
        finally:
            node.stop()
    json.dump(found, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
