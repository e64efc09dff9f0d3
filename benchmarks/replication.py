"""What sync replication costs, and how long a change of master takes; one run, one machine.

    python -m benchmarks.replication

A broker group of one server and one of two for each `replica_ack`, each with its meta server, as
processes of their own, flush = sync. Rounds go through all of them, so that all see the same
machine; those that are not measured are idle. Publish rate: four
senders of batches of 200 messages of 100 bytes. Latency: one sender, one message at a time. Then
the master of the pair is killed (dead after 10 s, the default) or hands over, under a sender that
notes the longest time without an answer.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ternmq
from tests.integration.processes import NodeFactory, tern
from tests.integration.replicated import GROUP, Pair, make_pair

BODY = b"x" * 100
BATCH = 200
SENDERS = 4
ROUND_S = 4.0
ROUNDS = 4
SINGLES = 400
ACKS = ("disk", "memory", "none")


async def publish_rate(url: str) -> float:
    """Messages a second."""
    count = 0
    async with ternmq.connect(url, app="bench") as mq:
        until = time.monotonic() + ROUND_S

        async def send() -> None:
            nonlocal count
            while time.monotonic() < until:
                await mq.send_many("rate", [BODY] * BATCH)
                count += BATCH

        await mq.send("rate", BODY)
        began = time.monotonic()
        await asyncio.gather(*(send() for _ in range(SENDERS)))
        return count / (time.monotonic() - began)


async def latencies(url: str) -> list[float]:
    """Milliseconds of single sends."""
    taken: list[float] = []
    async with ternmq.connect(url, app="bench") as mq:
        await mq.send("single", BODY)
        for _ in range(SINGLES):
            began = time.perf_counter()
            await mq.send("single", BODY)
            taken.append((time.perf_counter() - began) * 1000)
    return taken


async def longest_gap(url: str, change: Any) -> float:
    """Seconds without an answer while `change` (blocking) happens and until all is well."""
    longest = 0.0
    async with ternmq.connect(url, app="bench") as mq:
        await mq.send("gap", BODY)
        changing = asyncio.create_task(asyncio.to_thread(change))
        last = time.monotonic()
        settled = 0.0
        while not settled or time.monotonic() < settled + 2:
            await mq.send("gap", BODY)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if changing.done() and not settled:
                settled = now
        await changing
    return longest


def kill_master(pair: Pair) -> None:
    first = pair.master()
    first.kill()
    pair.wait("another master", lambda standing: pair.broker_of(standing.master) is not first, 30)
    time.sleep(1)
    first.start()
    pair.wait_in_sync(2)


def hand_over(pair: Pair) -> None:
    tern("broker", "handover", GROUP, url=pair.url)
    pair.wait_in_sync(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as home:
        nodes = NodeFactory(Path(home))
        try:
            print(json.dumps(measure(nodes, Path(home), chosen.changes), indent=2))
        finally:
            nodes.finish()


def measure(nodes: NodeFactory, home: Path, changes: int) -> dict[str, Any]:
    groups: dict[str, Pair] = {}
    for name in ("alone", *ACKS):
        (home / name).mkdir()
        settings = {"TERN_REPLICA_LOST": "continue"}
        if name in ACKS:
            settings["TERN_REPLICA_ACK"] = name
        count = 2 if name in ACKS else 1
        groups[name] = make_pair(nodes, home / name, count=count, settings=settings)
    pair = groups["disk"]
    rates: dict[str, list[float]] = {name: [] for name in groups}
    singles: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(ROUNDS):
        for name, group in groups.items():
            rates[name].append(asyncio.run(publish_rate(group.url)))
            singles[name] += asyncio.run(latencies(group.url))
    found: dict[str, Any] = {}
    for name in rates:
        ordered = sorted(singles[name])
        found[name] = {
            "messages_per_s": round(statistics.median(rates[name])),
            "p50_ms": round(ordered[len(ordered) // 2], 2),
            "p99_ms": round(ordered[len(ordered) * 99 // 100], 2),
        }
    for name in ACKS:
        of, alone = found[name], found["alone"]
        of["rate_kept"] = round(of["messages_per_s"] / alone["messages_per_s"], 2)
        of["added_p50_ms"] = round(of["p50_ms"] - alone["p50_ms"], 2)
    found["handover_gaps_s"] = [
        round(asyncio.run(longest_gap(pair.url, lambda: hand_over(pair))), 2)
        for _ in range(changes)
    ]
    found["failover_gaps_s"] = [
        round(asyncio.run(longest_gap(pair.url, lambda: kill_master(pair))), 2)
        for _ in range(changes)
    ]
    found["dead_after_s"] = 1.5
    return found


if __name__ == "__main__":
    main()
