"""How long producers and consumers stand still when another broker leads: distributions.

    python -m benchmarks.failover [--quick]

A broker group of two servers with its meta server, processes of their own, sync replication. One
producer sends a message every few milliseconds and waits for its receipt, one consumer acks them.
Then, again and again, the master hands over (`tern broker handover`) or is killed with kill -9,
with a short `server_dead_after_ms` and with the default. Noted are the longest time that the
producer waited for a receipt and the longest that the consumer saw nothing new, from the change
until both brokers are in step again; how often an exception came out of the client (never), and
how many messages came twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ternmq
from benchmarks.machine import describe
from tests.integration.broker_pair import GROUP, QUICK, Pair, make_pair
from tests.integration.processes import NodeFactory, tern

EACH_S = 0.005
SETTLED_S = 1.0
"""Both go on for so long after a change; the next one comes then."""
DEFAULT_DEAD_S = 10.0
ASKED_S = {"handover": 1.0, "failover, default": 15.0}
"""The longest pause of writes that the issue allows."""
Fields = dict[str, Any]
Change = Callable[[Pair], None]


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


def kill_master(pair: Pair) -> None:
    first = pair.master()
    first.kill()
    pair.wait("another master", lambda standing: pair.broker_of(standing.master) is not first, 60)
    time.sleep(SETTLED_S)
    first.start()
    pair.wait_in_sync(2)


def hand_over(pair: Pair) -> None:
    tern("broker", "handover", GROUP, url=pair.url)
    pair.wait_in_sync(2)


async def gaps(pair: Pair, change: Change, times: int, told: Callable[[str], None]) -> Fields:
    found: Fields = {"producer_s": [], "consumer_s": []}
    async with Load(pair.url) as load:
        await asyncio.sleep(SETTLED_S)
        for number in range(times):
            load.sent.begin()
            load.seen.begin()
            await asyncio.to_thread(change, pair)
            await asyncio.sleep(SETTLED_S)
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
        for side in ("producer", "consumer")
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
        ("failover, default", kill_master, 1 if quick else 6, False),
    ]
    result: Fields = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        for number, (what, change, times, soon) in enumerate(plan):
            told(what)
            folder = Path(name) / str(number)
            folder.mkdir()
            nodes = NodeFactory(folder)
            try:
                settings = {"TERN_REPLICA_LOST": "continue"}
                pair = make_pair(nodes, folder, settings=settings, meta=QUICK if soon else {})
                result[what] = summary(asyncio.run(gaps(pair, change, times, told)))
            finally:
                nodes.finish()
        return result | {"machine": describe(Path(name))}


def table(result: Fields) -> list[str]:
    lines = ["| change | side | count | p50 s | p90 s | max s |", "|---" * 6 + "|"]
    for what, found in result.items():
        for side in ("producer", "consumer") if what != "machine" else ():
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
    errors = sum(len(found["errors"]) for what, found in result.items() if what != "machine")
    word = "met   " if not errors else "MISSED"
    return [*lines, f"{word} exceptions seen by the application: {errors}; asked: none"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few of each, to see that it runs")
    options = parser.parse_args()
    result = measure(quick=options.quick, told=lambda line: print(line, file=sys.stderr))
    json.dump(result, sys.stdout, indent=2)
    print()
    print("\n".join([*table(result), *verdicts(result)]), file=sys.stderr)


if __name__ == "__main__":
    main()
