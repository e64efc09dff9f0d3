"""How long producers and consumers stand still when another broker leads: distributions.

    python -m benchmarks.failover [--quick] [--busy 16]

A broker group of three servers with its meta server, processes of their own, sync replication. One
producer sends a message every few milliseconds and waits for its receipt, one consumer acks them.
Then, again and again, the master hands over (`tern broker handover`) or is killed with kill -9,
with a short `server_dead_after_ms` and with the default, or it is stopped for a second (SIGSTOP),
beside so many processes that do nothing but compute. Noted are the longest time that the
producer waited for a receipt and the longest that the consumer saw nothing new, from the change
until all brokers are in step again; how long it took until another one led (of a stop: how often
one did, which is a false alarm); how often an exception came out of the client (never), and how
many messages came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ternmq
from benchmarks.machine import describe
from tests.integration.broker_pair import GROUP, QUICK, Pair, make_pair
from tests.integration.processes import NodeFactory, tern

MEMBERS = 3
"""As `tern cluster` has by default."""
EACH_S = 0.005
SETTLED_S = 1.0
"""They go on for so long after a change; the next one comes then."""
STOPPED_S = 1.0
ASKED_S = {"handover": 0.5, "failover, default": 5.0}
"""The longest pause of writes that is asked for, on a quiet machine."""
Fields = dict[str, Any]
Change = Callable[[Pair], float | None]
"""Does it; returns after how many seconds another one led, None: nobody else did."""


class Watched:
    """The longest time between two events since `begin`."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.monotonic()

    def begin(self) -> None:
        self.longest, self._last = 0.0, time.monotonic()

    def happened(self) -> None:
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now


class Load:
    """One producer and one consumer, for as long as the block runs."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sent, self.seen = Watched(), Watched()
        self.errors: list[str] = []
        self.repeats = 0
        self._highest = -1

    async def __aenter__(self) -> Load:
        self._client = ternmq.connect(self._url, app="bench")
        mq = await self._client.__aenter__()
        await mq.send("gap", b"%d" % 0)
        self._tasks = [asyncio.create_task(self._send(mq)), asyncio.create_task(self._consume(mq))]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.__aexit__(None, None, None)

    async def _send(self, mq: ternmq.Client) -> None:
        number = 0
        while True:
            number += 1
            try:
                await mq.send("gap", b"%d" % number)
            except ternmq.TernError as error:
                self.errors.append(repr(error))
            self.sent.happened()
            await asyncio.sleep(EACH_S)

    async def _consume(self, mq: ternmq.Client) -> None:
        try:
            async with mq.consumer("gap", group="bench") as consumer:
                async for message in consumer:
                    number = int(message.body)
                    if number > self._highest:
                        self._highest = number
                        self.seen.happened()
                    else:
                        self.repeats += 1
                    message.ack()
        except ternmq.TernError as error:
            self.errors.append(repr(error))


def kill_master(pair: Pair) -> float | None:
    first, killed_at = pair.master(), time.monotonic()
    first.kill()
    pair.wait("another master", lambda standing: pair.broker_of(standing.master) is not first, 60)
    noticed = time.monotonic() - killed_at
    time.sleep(SETTLED_S)
    first.start()
    pair.wait_in_sync(MEMBERS)
    return noticed


def hand_over(pair: Pair) -> float | None:
    begun = time.monotonic()
    tern("broker", "handover", GROUP, url=pair.url)
    done = time.monotonic() - begun
    pair.wait_in_sync(MEMBERS)
    return done


def stop_master(pair: Pair) -> float | None:
    """For a second: too short to be dead."""
    first, begun = pair.standing().master, time.monotonic()
    process = pair.broker_of(first)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(process.pid, signal.SIGCONT)
    time.sleep(SETTLED_S)
    pair.wait_in_sync(MEMBERS)
    return None if pair.standing().master == first else time.monotonic() - begun


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes want a core."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


async def gaps(pair: Pair, change: Change, times: int, told: Callable[[str], None]) -> Fields:
    found: Fields = {"producer_s": [], "consumer_s": [], "led_s": []}
    async with Load(pair.url) as load:
        await asyncio.sleep(SETTLED_S)
        for number in range(times):
            load.sent.begin()
            load.seen.begin()
            led = await asyncio.to_thread(change, pair)
            await asyncio.sleep(SETTLED_S)
            found["led_s"] += [] if led is None else [round(led, 3)]
            found["producer_s"].append(round(load.sent.longest, 3))
            found["consumer_s"].append(round(load.seen.longest, 3))
            told(f"  {number + 1} of {times}: {load.sent.longest:.2f} s, {load.seen.longest:.2f} s")
        return found | {"errors": load.errors, "repeats": load.repeats}


def summary(found: Fields) -> Fields:
    return found | {
        side: {
            "count": len(found[f"{side}_s"]),
            **{name: at(found[f"{side}_s"], share) for name, share in SHARES.items()},
        }
        for side in ("producer", "consumer", "led")
        if found[f"{side}_s"]
    }


SHARES = {"p50": 0.5, "p90": 0.9, "max": 1.0}


def at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def measure(*, quick: bool, told: Callable[[str], None]) -> Fields:
    """Each kind of change on its own broker group, one after the other."""
    short = float(QUICK["TERN_SERVER_DEAD_AFTER_MS"]) / 1000
    plan: list[tuple[str, Change, int, bool]] = [
        ("handover", hand_over, 3 if quick else 20, True),
        (f"failover, dead after {short:g} s", kill_master, 2 if quick else 20, True),
        ("failover, default", kill_master, 1 if quick else 20, False),
        ("stopped for a second", stop_master, 1 if quick else 20, False),
    ]
    result: Fields = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        for number, (what, change, times, soon) in enumerate(plan):
            told(what)
            folder = Path(name) / str(number)
            folder.mkdir()
            nodes = NodeFactory(folder)
            try:
                pair = make_pair(
                    nodes,
                    folder,
                    count=MEMBERS,
                    settings={"TERN_REPLICA_TIMEOUT_MS": "3000"},
                    meta=QUICK if soon else {},
                )
                result[what] = summary(asyncio.run(gaps(pair, change, times, told)))
            finally:
                nodes.finish()
        return result | {"machine": describe(Path(name))}


def table(result: Fields) -> list[str]:
    lines = ["| change | side | count | p50 s | p90 s | max s |", "|---" * 6 + "|"]
    for what, found in result.items():
        for side in ("producer", "consumer", "led") if what != "machine" else ():
            if side not in found:
                continue
            of = found[side]
            figures = " | ".join(f"{of[name]:.2f}" for name in SHARES)
            lines.append(f"| {what} | {side} | {of['count']} | {figures} |")
    return lines


def verdicts(result: Fields) -> list[str]:
    lines = []
    for what, asked in ASKED_S.items():
        longest = result[what]["producer"]["max"]
        word = "met   " if longest < asked else "MISSED"
        lines.append(f"{word} {what}, longest pause of writes: {longest:.2f} s; asked: {asked:g} s")
    alarms = len(result["stopped for a second"]["led_s"])
    word = "met   " if not alarms else "MISSED"
    lines.append(f"{word} false alarms of {STOPPED_S:g} s stops: {alarms}; asked: none")
    errors = sum(len(found["errors"]) for what, found in result.items() if what != "machine")
    word = "met   " if not errors else "MISSED"
    return [*lines, f"{word} exceptions seen by the application: {errors}; asked: none"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few of each, to see that it runs")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside it")
    options = parser.parse_args()
    with busy(options.busy):
        result = measure(quick=options.quick, told=lambda line: print(line, file=sys.stderr))
    json.dump(result, sys.stdout, indent=2)
    print()
    print("\n".join([*table(result), *verdicts(result)]), file=sys.stderr)


if __name__ == "__main__":
    main()
