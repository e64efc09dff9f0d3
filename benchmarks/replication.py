"""What sync replication costs; one run, one machine. For changes of master see `failover`.

    python -m benchmarks.replication

A broker group of one server and one of two for each `replica_ack`, each with its meta server, as
processes of their own, flush = sync. Rounds go through all of them, so that all see the same
machine; those that are not measured are idle. Publish rate: four
senders of batches of 200 messages of 100 bytes. Latency: one sender, one message at a time.
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
from tests.integration.broker_pair import Pair, make_pair
from tests.integration.processes import NodeFactory

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as home:
        nodes = NodeFactory(Path(home))
        try:
            print(json.dumps(measure(nodes, Path(home)), indent=2))
        finally:
            nodes.finish()


def measure(nodes: NodeFactory, home: Path) -> dict[str, Any]:
    groups: dict[str, Pair] = {}
    for name in ("alone", *ACKS):
        (home / name).mkdir()
        settings = {"TERN_REPLICA_LOST": "continue"}
        if name in ACKS:
            settings["TERN_REPLICA_ACK"] = name
        count = 2 if name in ACKS else 1
        groups[name] = make_pair(nodes, home / name, count=count, settings=settings)
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
    return found


if __name__ == "__main__":
    main()
