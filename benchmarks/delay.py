"""What the delay server is asked: accepting, a burst, lateness, memory and a restart.

Each figure starts a node of its own (`tern up`, flush = sync), because pending messages of one
would disturb the next. The producer runs in a process of its own. `python -m benchmarks.delay` runs
all of them, or those named; `--pending` is how many messages wait in the restart figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.own import in_process
from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.peers.ternmq import TernPeer

LIST = 4_000
CALLS = 8
SIZE = 100
POLL_S = 0.005
BURST_AHEAD_S = 5.0
"""Between the last accepted message of a burst and the moment in which all are due."""
LATE_AHEAD_S = 10.0
"""Long enough for two processes to start: one that sends, one that receives."""
Fields = dict[str, Any]


@contextmanager
def a_node() -> Iterator[tuple[TernPeer, Path]]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        node.start(Path(directory))
        try:
            yield node, Path(directory)
        finally:
            node.stop()


def _run(url: str, work: Callable[[Any], Any]) -> Any:
    import uvloop

    import ternmq

    async def whole() -> Any:
        async with ternmq.connect(url, app="bench", delivery_timeout=600) as mq:
            return await work(mq)

    return uvloop.run(whole())


def send_load(url: str, pid: int, topic: str, count: int, due: list[float] | float) -> Fields:
    """`count` messages, eight calls of `send_many` on their way; due at one time, or at each of
    these in turn."""
    times = due if isinstance(due, list) else [due]
    moments = [datetime.fromtimestamp(at, UTC) for at in times]

    async def work(mq: Any) -> Fields:
        bodies = [os.urandom(SIZE) for _ in range(LIST)]
        left = count // LIST

        async def caller() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await mq.send_many(topic, bodies, at=moments[left % len(moments)])

        server, client, began = tree_cpu_seconds([pid]), own_cpu_seconds(), time.monotonic()
        await asyncio.gather(*(caller() for _ in range(CALLS)))
        took = time.monotonic() - began
        return {
            "rate": count / took,
            "seconds": took,
            "client_cpu_s_per_million": (own_cpu_seconds() - client) / count * 1e6,
            "server_cpu_s_per_million": (tree_cpu_seconds([pid]) - server) / count * 1e6,
        }

    return dict(_run(url, work))


def accept(*, count: int = 3_000_000) -> Fields:
    """How many delayed messages a second one producer gets stored; they are due tomorrow."""
    with a_node() as (node, _):
        tomorrow = time.time() + 86_400
        load = partial(in_process, send_load, node.url(), node.pids()[0])
        load("warm", 40_000, tomorrow)
        return dict(load("later", count, tomorrow, deadline=600.0))


def _stored(url: str, topic: str, until: int, deadline: float) -> list[tuple[float, int]]:
    """(time, messages in the broker) whenever that grew, until all are there."""

    async def work(mq: Any) -> list[tuple[float, int]]:
        seen: list[tuple[float, int]] = []
        give_up = time.time() + deadline
        while time.time() < give_up:
            [status] = await mq.admin.broker_status([topic])
            end = status.topics[0].end if status.topics else 0
            if end != (seen[-1][1] if seen else 0):
                seen.append((time.time(), end))
            if end >= until:
                break
            await asyncio.sleep(POLL_S)
        return seen

    return list(_run(url, work))


def burst(*, count: int = 500_000) -> Fields:
    """All due in the same second: how long until the last one is in the broker."""
    with a_node() as (node, _):
        url, pid = node.url(), node.pids()[0]
        in_process(send_load, url, pid, "warm", 40_000, time.time() + 86_400)
        due = float(int(time.time() + count / 100_000 + BURST_AHEAD_S))
        load = in_process(send_load, url, pid, "burst", count, due)
        assert time.time() < due, "this machine is too slow to accept the burst before it is due"
        seen = _stored(url, "burst", count, deadline=180.0)
        if not seen or seen[-1][1] < count:
            return {"failed": f"{seen[-1][1] if seen else 0} of {count} arrived", **load}
        return {
            "count": count,
            "first_after_s": seen[0][0] - due,
            "last_after_s": seen[-1][0] - due,
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

    _run(url, work)


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

    return list(_run(url, work))


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


def restart(*, pending: int = 10_000_000) -> Fields:
    """kill -9 with so many pending, due from 20 to 50 minutes ahead: how long until the node
    answers, until a message for now gets through, and what each pending one costs in memory."""
    with a_node() as (node, directory):
        url, pid = node.url(), node.pids()[0]
        empty = _memory(url)
        now = time.time()
        spread = [now + 1200 + at for at in range(0, 1800, 5)]
        load = in_process(send_load, url, pid, "pending", pending, spread, deadline=1200.0)
        os.kill(pid, signal.SIGKILL)
        node.stop()
        (directory / "server.log").unlink()
        began = time.monotonic()
        node.start(directory)
        ready_s = time.monotonic() - began
        url = node.url()
        _run(url, lambda mq: mq.send("probe", b"x", delay=0))
        seen = _stored(url, "probe", 1, deadline=600.0)
        fired_s = time.monotonic() - began
        loaded = _memory_when_still(url)
        [line] = _run(url, lambda mq: mq.admin.delays.ledger("pending"))
        return {
            "pending": line.pending,
            "accept_rate": load["rate"],
            "ready_s": ready_s,
            "fires_again_s": fired_s if seen else None,
            "memory_mib": loaded / 2**20,
            "bytes_per_pending": (loaded - empty) / pending,
        }


def _memory(url: str) -> int:
    [status] = _run(url, lambda mq: mq.admin.delays.status())
    return int(status.memory)


def _memory_when_still(url: str, deadline: float = 300.0) -> int:
    """What the node takes once its hours are loaded: when it has not grown for two seconds."""
    give_up, highest, since = time.monotonic() + deadline, 0, time.monotonic()
    while time.monotonic() < give_up and time.monotonic() - since < 2.0:
        now = _memory(url)
        if now > highest * 1.005:
            highest, since = now, time.monotonic()
        time.sleep(0.2)
    return highest


FIGURES: dict[str, Callable[[argparse.Namespace], Fields]] = {
    "accept": lambda options: accept(count=400_000 if options.quick else 3_000_000),
    "burst": lambda options: burst(count=100_000 if options.quick else 500_000),
    "late-1k": lambda options: lateness(rate=1_000, seconds=4 if options.quick else 10),
    "late-20k": lambda options: lateness(rate=20_000, seconds=4 if options.quick else 10),
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
