"""`python -m benchmarks.tls`: what TLS costs. Bulk over TLS as a share of the same in the clear.

Two nodes on one machine, one of them with TLS and client certificates (`tern secure` makes them),
take turns: publish, consume, new connections. Shares and CPU per message travel between machines,
rates do not. The goal is at least a quarter of plain bulk. `--quick` for a look.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.own import Fields, _run, in_process, publish
from benchmarks.peers.meter import own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.peers.ternmq import TernPeer

SHARE_MIN = 0.25
TOPIC = "load-4000-100-0"
"""Where `own.publish` sends by default."""


def consume_load(url: str, pid: int, count: int, group: str) -> Fields:
    """`count` messages of what was published before."""

    async def work(mq: Any) -> Fields:
        done = 0
        async with mq.consumer(TOPIC, group=group, start="earliest", prefetch=20_000) as consumer:
            broker, client, began = tree_cpu_seconds([pid]), own_cpu_seconds(), time.monotonic()
            async for batch in consumer.batches():
                done += len(batch)
                batch.ack()
                if done >= count:
                    break
            took = time.monotonic() - began
        return {
            "rate": done / took,
            "client_cpu_s_per_million": (own_cpu_seconds() - client) / done * 1e6,
            "broker_cpu_s_per_million": (tree_cpu_seconds([pid]) - broker) / done * 1e6,
        }

    return dict(_run(url, work))


def connect_load(url: str, count: int) -> Fields:
    """Clients that come, say hello to a meta server, and go."""
    import uvloop

    import ternmq

    async def whole() -> Fields:
        began = time.monotonic()
        for _ in range(count):
            async with ternmq.connect(url, app="bench"):
                pass
        return {"connects_s": count / (time.monotonic() - began)}

    async def bounded() -> Fields:
        async with asyncio.timeout(120):
            return await whole()

    return dict(uvloop.run(bounded()))


def measure(*, count: int, rounds: int) -> Fields:
    """Both nodes in turn, so that what else the machine does is shared."""
    found: dict[str, list[Fields]] = {"plain": [], "tls": []}
    with tempfile.TemporaryDirectory(prefix="bench-tls-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        nodes = {"plain": TernPeer(flush="async"), "tls": TernPeer(flush="async", tls=True)}
        try:
            for kind, node in nodes.items():
                (folder / kind).mkdir()
                node.start(folder / kind)
            for number in range(rounds):
                for kind, node in nodes.items():
                    url, pid = node.url(), node.pids()[0]
                    figures = {
                        "publish": publish(url, pid, count=count),
                        "consume": in_process(consume_load, url, pid, count, f"g{number}"),
                        **in_process(connect_load, url, 100),
                    }
                    print(f"{number} {kind}: {json.dumps(figures)}", file=sys.stderr, flush=True)
                    found[kind].append(figures)
        finally:
            for node in nodes.values():
                node.stop()
    return {"runs": found, "shares": shares(found)}


def shares(found: dict[str, list[Fields]]) -> dict[str, float]:
    """TLS over plain, medians of the rounds."""
    return {
        work: _median(found["tls"], work) / _median(found["plain"], work)
        for work in ("publish", "consume")
    }


def targets(found: Fields) -> list[tuple[str, float, float, str]]:
    """For the report of `make bench`."""
    return [
        (f"{work} over TLS / in the clear", share, SHARE_MIN, "at least")
        for work, share in found["shares"].items()
    ]


def _median(runs: list[Fields], work: str) -> float:
    return statistics.median(run[work]["rate"] for run in runs)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.quick:
        found = measure(count=200_000, rounds=1)
    else:
        found = measure(count=4_000_000, rounds=options.rounds)
    for work, share in found["shares"].items():
        met = "met   " if share >= SHARE_MIN else "MISSED"
        print(f"{met} {work} over TLS: {share:.0%} of plain, at least {SHARE_MIN:.0%}")


if __name__ == "__main__":
    main()
