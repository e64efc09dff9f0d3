"""A hot hour: ten million messages due in one hour, a kill -9, and what a start does with them.

The due times are drawn at random, row by row, so every batch is spread over the whole hour: the
worst case for reading. One schedule log holds them all (`delay_hour_ms` is a day here), whatever
the time of the run. While the hour is loaded again, a producer goes on sending messages that are
due soon, one every few milliseconds: its answers show whether producers stall, the lateness of its
messages whether ticks do. Then the hour begins, and the lateness of its own rows is taken.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.delay_node import Fields, a_node, in_process, run, stored

LIST = 4_000
CALLS = 8
SIZE = 100
HOUR_S = 3_600
PROBE_EACH_S = 0.005
PROBE_DELAY_S = 0.3
LOAD_WITHIN_S = 300.0
STEADY_S = 15
AHEAD_S = 25.0
"""For the start, the load and the probes before the hour begins."""
WARM_UP = 80_000
"""Sent first, to know how long sending takes: the hour begins after it."""


def send_hot(url: str, topic: str, count: int, start: float) -> Fields:
    """`count` messages due at random within the hour from `start`; each body says when."""
    from ternmq import Outgoing

    chance = np.random.default_rng(4)
    first_ms, rest = int(start * 1000), b"x" * (SIZE - 15)

    async def work(mq: Any) -> Fields:
        left = count // LIST

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                dues = (first_ms + chance.integers(0, HOUR_S * 1000, LIST)).tolist()
                rows = [Outgoing(body=b"%015d" % due + rest, due_at_ms=due) for due in dues]
                await mq.send_many(topic, rows)

        began = time.monotonic()
        await asyncio.gather(*(caller() for _ in range(CALLS)))
        return {"rate": count / (time.monotonic() - began)}

    return dict(run(url, work))


def probe(url: str, topic: str, until: float) -> list[float]:
    """Send a message for soon every few milliseconds; how long each answer took, in ms."""

    async def work(mq: Any) -> list[float]:
        took: list[float] = []
        while time.time() < until:
            began = time.perf_counter()
            due = time.time_ns() // 1_000_000 + int(PROBE_DELAY_S * 1000)
            await mq.send(topic, b"%015d" % due, delay=PROBE_DELAY_S)
            took.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PROBE_EACH_S)
        return took

    return list(run(url, work))


def ages(url: str, topic: str, until: float) -> list[int]:
    """From due to received, of what comes until then, in ms."""

    async def work(mq: Any) -> list[int]:
        found: list[int] = []
        try:
            async with (
                asyncio.timeout(max(0.0, until - time.time())),
                mq.consumer(topic, group="late", prefetch=50_000) as consumer,
            ):
                async for batch in consumer.batches():
                    now = time.time_ns() // 1_000_000
                    found += [now - int(body[:15]) for body in batch.bodies]
                    batch.ack()
        except TimeoutError:
            pass
        return found

    return list(run(url, work))


def spread(values: list[float] | list[int], name: str) -> Fields:
    """p50, p99 and max."""
    if not values:
        return {f"{name}_count": 0}
    ordered = sorted(values)
    return {
        f"{name}_count": len(ordered),
        f"{name}_p50_ms": ordered[len(ordered) // 2],
        f"{name}_p99_ms": ordered[int(len(ordered) * 0.99)],
        f"{name}_max_ms": ordered[-1],
    }


def probed(url: str, topic: str, seconds: float, name: str) -> Fields:
    """The answers and the lateness of messages for soon, for so long."""
    until = time.time() + seconds
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(in_process, ages, url, topic, until + 1.0)
        took = pool.submit(in_process, probe, url, topic, until)
        return {**spread(took.result(), f"{name}_send"), **spread(late.result(), f"{name}_late")}


def resident(pid: int, field: str) -> int:
    """VmRSS or VmHWM of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def restart(*, pending: int = 10_000_000) -> Fields:
    """Send, kill, start, load, and the first seconds of the hour."""
    with a_node({"TERN_DELAY_HOUR_MS": "86400000"}) as (node, directory):
        url, pid = node.url(), node.pids()[0]
        empty = resident(pid, "VmRSS")
        before = probed(url, "before", 5.0, "idle")
        warm = in_process(send_hot, url, "warm", WARM_UP, time.time() + 4 * HOUR_S)
        hour = time.time() + 1.3 * pending / warm["rate"] + AHEAD_S
        load = in_process(send_hot, url, "hot", pending, hour, deadline=600.0)
        os.kill(pid, signal.SIGKILL)
        node.stop()
        log = directory / "server.log"
        log.unlink()
        began = time.monotonic()
        node.start(directory)
        ready_s = time.monotonic() - began
        url, pid = node.url(), node.pids()[0]
        with ThreadPoolExecutor(2) as pool:
            during = pool.submit(probed, url, "during", 10.0, "loading")
            run(url, lambda mq: mq.send("first", b"x", delay=0))
            fires = stored(url, "first", 1, deadline=LOAD_WITHIN_S)
            fires_s = time.monotonic() - began
            while (rows := _loaded(log)) < pending and time.monotonic() - began < LOAD_WITHIN_S:
                time.sleep(0.02)
            loaded_s = time.monotonic() - began
            stalls = during.result()
        peak, now = resident(pid, "VmHWM"), resident(pid, "VmRSS")
        in_time = time.time() < hour
        late = in_process(ages, url, "hot", hour + STEADY_S, deadline=hour - time.time() + 60.0)
        return {
            "pending": pending,
            "rows_loaded": rows,
            "accept_rate": load["rate"],
            "ready_s": ready_s,
            "fires_again_s": fires_s if fires else None,
            "loaded_s": loaded_s,
            "loaded_before_the_hour": in_time,
            "memory_mib": now / 2**20,
            "peak_mib": peak / 2**20,
            "empty_mib": empty / 2**20,
            "bytes_per_pending": (now - empty) / pending,
            **before,
            **stalls,
            **spread(late, "hot_late"),
            "hot_early": sum(age < 0 for age in late),
        }


def _loaded(log: Path) -> int:
    """Rows of hours that are loaded, by the node's log."""
    rows = 0
    for line in log.read_text().splitlines():
        if "hour loaded" in line:
            rows += int(line.partition("rows=")[2].split()[0])
    return rows


def wheel_bytes(*, rows: int = 10_000_000) -> Fields:
    """What a pending row takes on the wheel, by its arrays, when an hour is loaded in steps."""
    from ternmq.delay.timing.wheel import RUN_ROWS_MAX, Wheel

    wheel, chance, worst = Wheel(), np.random.default_rng(5), 0.0
    step = RUN_ROWS_MAX // 4
    for first in range(0, rows, step):
        numbers = np.arange(first, min(rows, first + step), dtype=np.uint32)
        due_ms = np.sort(chance.integers(0, HOUR_S * 1000, len(numbers)))
        began = time.thread_time()
        wheel.add_sorted(0, numbers, due_ms)
        worst = max(worst, time.thread_time() - began)
    return {
        "rows": rows,
        "bytes_per_row": wheel.size / rows,
        "worst_add_ms": worst * 1000,
    }
