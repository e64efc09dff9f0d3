"""What a second broker group costs: CPU seconds per million messages, one group against two.

Two clusters by `tern cluster` side by side, one with one broker group and one with two, each on its
own folder. The same load goes to each in turns, round after round in one run, so that both see the
same machine: a producer with `send_many`, then a consumer in batches, each a process of its own.
Counted is the CPU of the brokers and of the client processes; medians of the rounds are compared.
`python -m benchmarks.cluster [--quick] [--rounds N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.own import in_process

SIZE = 100
BATCH = 10_000
SENDERS = 8
"""Each waits for its answer before it sends again; enough that no broker group idles."""
GROWTH_MAX = 0.10
PORT_BASE = 18_100
Fields = dict[str, Any]


@contextlib.contextmanager
def a_cluster(groups: int) -> Iterator[str]:
    """`tern cluster` while the block runs; yields its url."""
    with tempfile.TemporaryDirectory(prefix="tern-bench-") as folder:
        for base in range(PORT_BASE, PORT_BASE + 2_000, 20):
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "ternmq.cli.main", "cluster", "--groups", str(groups),
                    "--delays", "0", "--data-dir", folder, "--ports", str(base),
                ],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            assert process.stdout is not None
            line = process.stdout.readline()
            if line.startswith("ready "):
                break
            process.communicate()
        else:
            raise RuntimeError("no free ports were found")
        try:
            yield line.split()[1]
        finally:
            process.terminate()
            process.communicate()


def load(url: str, topic: str, count: int, senders: int) -> Fields:
    """Send so many and consume them; CPU of both sides, per million of each."""
    import uvloop

    import ternmq
    from benchmarks.peers.meter import own_cpu_seconds

    async def brokers(mq: ternmq.Client) -> float:
        return sum(status.cpu_s for status in await mq.admin.broker_status())

    bodies = [b"%0*d" % (SIZE, number) for number in range(BATCH)]

    async def send(mq: ternmq.Client, times: int) -> None:
        for _ in range(times):
            await mq.send_many(topic, bodies)

    async def whole() -> Fields:
        found: Fields = {}
        async with ternmq.connect(url, app="bench") as mq:
            await mq.admin.create_topic(topic)
            await mq.admin.create_group(topic, "g", ternmq.Start())
            await mq.send_many(topic, bodies)
            for name in ("publish", "consume"):
                cpu, theirs, began = own_cpu_seconds(), await brokers(mq), time.monotonic()
                if name == "publish":
                    await asyncio.gather(
                        *(send(mq, count // BATCH // senders) for _ in range(senders))
                    )
                else:
                    async with mq.consumer(topic, group="g", prefetch=100_000) as consumer:
                        left = count + BATCH
                        async for batch in consumer.batches():
                            left -= len(batch)
                            batch.ack()
                            if left <= 0:
                                break
                        await consumer.flush()
                took, million = time.monotonic() - began, count / 1e6
                found[name] = {
                    "rate": count / took,
                    "brokers_cpu_s": (await brokers(mq) - theirs) / million,
                    "client_cpu_s": (own_cpu_seconds() - cpu) / million,
                }
            await mq.admin.delete_topic(topic)
        return found

    return dict(uvloop.run(whole()))


def compare(rounds: int, count: int, senders: int) -> Fields:
    """Rounds in turns; what the second group adds, as a part of what one costs."""
    runs: dict[int, list[Fields]] = {1: [], 2: []}
    with a_cluster(1) as one, a_cluster(2) as two:
        for number in range(rounds + 1):
            order = ((1, one), (2, two)) if number % 2 else ((2, two), (1, one))
            for groups, url in order:
                found = in_process(load, url, f"round-{number}", count, senders)
                if number:  # The first one warms up.
                    runs[groups].append(found)
    result: Fields = {"rounds": rounds, "messages": count, "size": SIZE, "senders": senders}
    for name in ("publish", "consume"):
        total = {groups: _median(each, name) for groups, each in runs.items()}
        result[name] = {
            "one_group": total[1],
            "two_groups": total[2],
            "cpu_growth": total[2]["cpu_s"] / total[1]["cpu_s"] - 1,
        }
    both = {
        groups: sum(_median(each, name)["cpu_s"] for name in ("publish", "consume"))
        for groups, each in runs.items()
    }
    result["cpu_growth"] = both[2] / both[1] - 1
    return result


def _median(runs: list[Fields], name: str) -> Fields:
    """CPU seconds per million on both sides together, and the parts."""
    parts = [run[name] for run in runs]
    return {
        "cpu_s": statistics.median(part["brokers_cpu_s"] + part["client_cpu_s"] for part in parts),
        "brokers_cpu_s": statistics.median(part["brokers_cpu_s"] for part in parts),
        "client_cpu_s": statistics.median(part["client_cpu_s"] for part in parts),
        "rate": statistics.median(part["rate"] for part in parts),
    }


def verdict(result: Fields) -> str:
    grown = result["cpu_growth"]
    word = "reached" if grown <= GROWTH_MAX else "MISSED"
    return f"{word}: CPU with two broker groups {grown:+.1%} over one (at most +{GROWTH_MAX:.0%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="A small load, to see that it runs.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--senders", type=int, default=SENDERS, help="Calls under way at once.")
    wanted = parser.parse_args()
    rounds, count = (1, 160_000) if wanted.quick else (wanted.rounds, 2_400_000)
    result = compare(rounds, count, wanted.senders)
    print(json.dumps(result, indent=2))
    print(verdict(result), file=sys.stderr)


if __name__ == "__main__":
    main()
