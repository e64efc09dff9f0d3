"""What the delay server is asked: accepting, a burst, lateness, memory and a restart.

Each figure starts a node of its own (`tern up`, flush = sync), because pending messages of one
would disturb the next. The producer runs in a process of its own. `python -m benchmarks.delay` runs
all of them, or those named; `--pending` is how many messages wait in the restart figure, which is
in `delay_hot`. The rate of plain `send_many` on the same node stands beside that of delayed ones.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.delay_hot import restart, wheel_bytes
from benchmarks.delay_node import Fields, a_node, in_process, run, stored
from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds

LIST = 4_000
CALLS = 8
SIZE = 100
BURST_AHEAD_S = 5.0
"""Between the last accepted message of a burst and the moment in which all are due."""
LATE_AHEAD_S = 10.0
"""Long enough for two processes to start: one that sends, one that receives."""
ON_TIME_S = 1.0
"""A message of a burst is on time when it is in the broker within the second it was due in."""


def send_load(url: str, pid: int, topic: str, count: int, due: float | None) -> Fields:
    """`count` messages, eight calls of `send_many` on their way; due then, or not delayed."""
    at = None if due is None else datetime.fromtimestamp(due, UTC)

    async def work(mq: Any) -> Fields:
        bodies = [os.urandom(SIZE) for _ in range(LIST)]
        left = count // LIST

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await mq.send_many(topic, bodies, at=at)

        server, client, began = tree_cpu_seconds([pid]), own_cpu_seconds(), time.monotonic()
        await asyncio.gather(*(caller() for _ in range(CALLS)))
        took = time.monotonic() - began
        return {
            "rate": count / took,
            "seconds": took,
            "client_cpu_s_per_million": (own_cpu_seconds() - client) / count * 1e6,
            "server_cpu_s_per_million": (tree_cpu_seconds([pid]) - server) / count * 1e6,
        }

    return dict(run(url, work))


def accept(*, count: int = 3_000_000) -> Fields:
    """How many delayed messages a second one producer gets stored; they are due tomorrow. Then how
    long until all of them lie in their hour: the message log is read again for that."""
    with a_node() as (node, _):
        tomorrow = time.time() + 86_400
        load = partial(in_process, send_load, node.url(), node.pids()[0])
        load("warm", 40_000, tomorrow)
        plain = load("now", count, None, deadline=600.0)
        found = load("later", count, tomorrow, deadline=600.0)
        began = time.monotonic()
        counts = run(node.url(), lambda mq: mq.admin.delays.counts("later"))
        assert sum(pending for _, pending in counts.hours) == count
        return {
            **found,
            "plain_rate": plain["rate"],
            "share_of_plain": found["rate"] / plain["rate"],
            "scheduled_after_s": time.monotonic() - began,
        }


def burst(*, count: int = 500_000) -> Fields:
    """All due in the same second: how long until the last one is in the broker."""
    with a_node() as (node, _):
        url, pid = node.url(), node.pids()[0]
        in_process(send_load, url, pid, "warm", 40_000, time.time() + 86_400)
        due = float(int(time.time() + count / 100_000 + BURST_AHEAD_S))
        load = in_process(send_load, url, pid, "burst", count, due)
        assert time.time() < due, "this machine is too slow to accept the burst before it is due"
        seen = stored(url, "burst", count, deadline=180.0)
        if not seen or seen[-1][1] < count:
            return {"failed": f"{seen[-1][1] if seen else 0} of {count} arrived", **load}
        return {
            "count": count,
            "first_after_s": seen[0][0] - due,
            "last_after_s": seen[-1][0] - due,
            "on_time": max((end for at, end in seen if at <= due + ON_TIME_S), default=0),
            "early": max((end for at, end in seen if at < due), default=0),
            "rate": count / max(seen[-1][0] - due, 1e-9),
        }


def _late_load(url: str, topic: str, rate: int, seconds: int, start: float) -> None:
    from ternmq import Outgoing

    async def work(mq: Any) -> None:
        count = rate * seconds
        first_ms = int(start * 1000)
        rows = [
            Outgoing(body=b"%015d" % due, due_at_ms=due)
            for due in (first_ms + at * 1000 // rate for at in range(count))
        ]
        await mq.send_many(topic, rows)

    run(url, work)


def _late_ages(url: str, topic: str, count: int, deadline: float) -> list[int]:
    async def work(mq: Any) -> list[int]:
        ages: list[int] = []
        async with (
            asyncio.timeout(deadline),
            mq.consumer(topic, group="late", prefetch=50_000) as consumer,
        ):
            async for batch in consumer.batches():
                now = time.time_ns() // 1_000_000
                ages += [now - int(body) for body in batch.bodies]
                batch.ack()
                if len(ages) >= count:
                    break
        return ages

    return list(run(url, work))


def lateness(*, rate: int, seconds: int = 10) -> Fields:
    """From due to received by a consumer, at `rate` due per second, evenly spread."""
    with a_node() as (node, _):
        url, count = node.url(), rate * seconds
        in_process(send_load, url, node.pids()[0], "warm", 8_000, time.time() + 86_400)
        start = time.time() + LATE_AHEAD_S + count / 50_000
        in_process(_late_load, url, "late", rate, seconds, start)
        assert time.time() < start, "this machine is too slow to accept before it is due"
        ages = sorted(in_process(_late_ages, url, "late", count, seconds + 60.0))
        return {
            "rate": rate,
            "count": len(ages),
            "early": sum(age < 0 for age in ages),
            "p50_ms": ages[len(ages) // 2],
            "p99_ms": ages[int(len(ages) * 0.99)],
            "max_ms": ages[-1],
        }


FIGURES: dict[str, Callable[[argparse.Namespace], Fields]] = {
    "accept": lambda options: accept(count=400_000 if options.quick else 3_000_000),
    "burst": lambda options: burst(count=100_000 if options.quick else 500_000),
    "late-1k": lambda options: lateness(rate=1_000, seconds=4 if options.quick else 10),
    "late-20k": lambda options: lateness(rate=20_000, seconds=4 if options.quick else 10),
    "wheel": lambda options: wheel_bytes(rows=options.pending),
    "restart": lambda options: restart(pending=options.pending),
}


def measure(options: argparse.Namespace, told: Callable[[str], None]) -> dict[str, Fields]:
    """The figures named, or all."""
    found: dict[str, Fields] = {}
    for name in options.figures or FIGURES:
        found[name] = FIGURES[name](options)
        told(f"delay {name}: {found[name]}")
    return found


def targets(found: dict[str, Fields]) -> list[tuple[str, float, float, str]]:
    """Name, value, target, side; for `benchmarks.run`."""
    lines: list[tuple[str, float, float, str]] = []
    if "accept" in found:
        lines.append(("delay: accepted a second", found["accept"]["rate"], 300_000, "at least"))
    if "burst" in found and "last_after_s" in found["burst"]:
        late = found["burst"]["last_after_s"] * 500_000 / found["burst"]["count"]
        lines.append(("delay: s for 500 k due at once", late, 3.0, "at most"))
    for name in ("late-1k", "late-20k"):
        if name in found:
            early = float(found[name]["early"])
            lines.append((f"delay: early at {name[5:]}/s", early, 0.0, "at most"))
    if "restart" in found:
        hot = found["restart"]
        lines.append(("delay: early in a hot hour", float(hot["hot_early"]), 0.0, "at most"))
        tick = hot.get("loading_late_p99_ms", float("inf"))
        lines.append(("delay: p99 ms late while it loads", float(tick), 1_000.0, "at most"))
    return lines


def defaults(*, quick: bool) -> argparse.Namespace:
    """What `make bench` measures."""
    return argparse.Namespace(figures=[], quick=quick, pending=1_000_000 if quick else 10_000_000)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="*", choices=[*FIGURES, []], help="all, if none is named")
    parser.add_argument("--quick", action="store_true", help="smaller counts")
    parser.add_argument("--pending", type=int, default=None, help="for the restart; 10 million")
    options = parser.parse_args()
    if options.pending is None:
        options.pending = defaults(quick=options.quick).pending
    began = time.monotonic()
    found = measure(options, told=lambda text: print(text, file=sys.stderr, flush=True))
    print(json.dumps({**found, "took_s": time.monotonic() - began}, indent=2))


if __name__ == "__main__":
    main()
