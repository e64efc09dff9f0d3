"""`python -m benchmarks.tls`: what TLS costs. Bulk over TLS as a share of the same in the clear.

Two nodes on one machine, one of them with TLS and client certificates (`tern secure` makes them),
take turns: publish, consume, new connections; and two Kafka brokers beside them where there is one
(`benchmarks.peers.install kafka`), one of them with an `ssl` listener, TLS 1.3 and client
certificates. Nobody syncs before an answer. Shares and CPU per message travel between machines,
rates do not. The goals: at least a quarter of plain bulk, and ahead of Kafka over TLS in the same
run. `--quick` for a look.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.own import Fields, _run, in_process, publish
from benchmarks.peers.driver import ClientRecipe
from benchmarks.peers.kafka import KafkaPeer
from benchmarks.peers.meter import Meter, own_cpu_seconds
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.peers.ternmq import TernPeer

SHARE_MIN = 0.25
AHEAD_MIN = 1.0
KAFKA, KAFKA_TLS = "kafka", "kafka tls"
KAFKA_SECONDS_MAX = 60.0
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


def kafka_load(recipe: ClientRecipe, pids: list[int], topic: str, count: int) -> Fields:
    """The same amount through Kafka: published in lists, then consumed in batches."""
    client = recipe()
    client.prepare(topic, [])
    found: Fields = {}
    for work in ("publish", "consume"):
        meter = Meter(count=count, seconds=KAFKA_SECONDS_MAX, broker_pids=pids)
        if work == "publish":
            client.publish(topic, False, meter)
        else:
            client.consume(topic, "g", False, meter)
        seen = meter.measured
        assert seen is not None
        found[work] = {
            "rate": seen.done / (seen.ended - seen.began),
            "client_cpu_s_per_million": seen.client_cpu / seen.done * 1e6,
            "broker_cpu_s_per_million": seen.broker_cpu / seen.done * 1e6,
        }
    client.close()
    return found


def measure(*, count: int, rounds: int, kafka: bool = True) -> Fields:
    """All of them in turn, so that what else the machine does is shared."""
    nodes = {"plain": TernPeer(flush="async"), "tls": TernPeer(flush="async", tls=True)}
    others: dict[str, KafkaPeer] = {}
    missing = KafkaPeer(fsync=False).available() if kafka else "not asked for"
    if missing is None:
        others = {
            name: KafkaPeer(fsync=False, tls=name == KAFKA_TLS) for name in (KAFKA, KAFKA_TLS)
        }
    else:
        print(f"without Kafka: {missing}", file=sys.stderr)
    servers: dict[str, TernPeer | KafkaPeer] = {**nodes, **others}
    found: dict[str, list[Fields]] = {name: [] for name in servers}
    with tempfile.TemporaryDirectory(prefix="bench-tls-", ignore_cleanup_errors=True) as name:
        try:
            for kind, peer in servers.items():
                folder = Path(name) / kind
                folder.mkdir()
                peer.start(folder)
            for kafka_peer in others.values():  # A JVM gets faster with use.
                recipe = kafka_peer.client()
                in_process(kafka_load, recipe, kafka_peer.pids(), "warm", min(count, 1_000_000))
            for number in range(rounds):
                for kind, figures in _round(nodes, others, number, count):
                    print(f"{number} {kind}: {json.dumps(figures)}", file=sys.stderr, flush=True)
                    found[kind].append(figures)
        finally:
            for peer in servers.values():
                peer.stop()
    return {"runs": found, "shares": shares(found), "ahead": ahead(found), "cpu": cpu(found)}


def _round(
    nodes: dict[str, TernPeer], others: dict[str, KafkaPeer], number: int, count: int
) -> Iterator[tuple[str, Fields]]:
    for kind, node in nodes.items():
        url, pid = node.url(), node.pids()[0]
        yield (
            kind,
            {
                "publish": publish(url, pid, count=count),
                "consume": in_process(consume_load, url, pid, count, f"g{number}"),
                **in_process(connect_load, url, 100),
            },
        )
    for kind, peer in others.items():
        recipe, topic = peer.client(), f"bulk-{number}"
        yield kind, in_process(kafka_load, recipe, peer.pids(), topic, count)


def shares(found: dict[str, list[Fields]]) -> dict[str, float]:
    """TLS over plain, medians of the rounds."""
    return {
        work: _median(found["tls"], work) / _median(found["plain"], work)
        for work in ("publish", "consume")
    }


def ahead(found: dict[str, list[Fields]]) -> dict[str, float]:
    """Ours over TLS by Kafka's over TLS; empty where there is no Kafka."""
    if KAFKA_TLS not in found:
        return {}
    return {
        work: _median(found["tls"], work) / _median(found[KAFKA_TLS], work)
        for work in ("publish", "consume")
    }


def cpu(found: dict[str, list[Fields]]) -> dict[str, dict[str, float]]:
    """CPU seconds per million messages, client and server together."""
    sides = ("client_cpu_s_per_million", "broker_cpu_s_per_million")
    return {
        kind: {
            work: statistics.median(sum(run[work][side] for side in sides) for run in runs)
            for work in ("publish", "consume")
        }
        for kind, runs in found.items()
    }


def targets(found: Fields) -> list[tuple[str, float, float, str]]:
    """For the report of `make bench`."""
    lines = [
        (f"{work} over TLS / in the clear", share, SHARE_MIN, "at least")
        for work, share in found["shares"].items()
    ]
    lines += [
        (f"{work} over TLS / Kafka's over TLS", factor, AHEAD_MIN, "at least")
        for work, factor in found["ahead"].items()
    ]
    return lines


def _median(runs: list[Fields], work: str) -> float:
    return float(statistics.median(run[work]["rate"] for run in runs))


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
    for work, factor in found["ahead"].items():
        met = "met   " if factor >= AHEAD_MIN else "MISSED"
        print(f"{met} {work} over TLS: {factor:.2f} x Kafka's over TLS, at least {AHEAD_MIN:.0f}")
    for kind, figures in found["cpu"].items():
        said = ", ".join(f"{work} {seconds:.2f}" for work, seconds in figures.items())
        print(f"CPU s per million, both sides, {kind}: {said}")


if __name__ == "__main__":
    main()
