"""What a second broker group costs: CPU seconds per million messages, one group against two.

Two clusters by `tern cluster` side by side, one with one broker group and one with two, each on its
own folder. The same load goes to each in turns, round after round in one run, so that both see the
same machine: a producer with `send_many`, then a consumer in batches, each in a fresh process;
once with several calls under way and once with one at a time. Counted is the CPU of the brokers,
replicas too, and of the client. The machine is shared and its speed changes from minute to minute,
while nothing makes a round cheaper than it is: the least of the rounds are compared.
`python -m benchmarks.cluster [--quick] [--rounds N] [--senders 8,1] [--replicas 0,1]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.own import in_process

SIZE = 100
BATCH = 10_000
SENDERS = (8, 1)
"""Each waits for its answer before it sends again; eight are enough that no broker group idles."""
REPLICAS = (0, 1)
GROWTH_MAX = 0.10
PORT_BASE = 18_100
PARTS = ("publish", "consume")
Fields = dict[str, Any]


@contextlib.contextmanager
def a_cluster(groups: int, replicas: int = 0) -> Iterator[str]:
    """`tern cluster` while the block runs; yields its url."""
    with tempfile.TemporaryDirectory(prefix="tern-bench-") as folder:
        for base in range(PORT_BASE, PORT_BASE + 2_000, 40):
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ternmq.cli.main",
                    "cluster",
                    "--groups",
                    str(groups),
                    "--replicas",
                    str(replicas),
                    "--delays",
                    "0",
                    "--data-dir",
                    folder,
                    "--ports",
                    str(base),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
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


def busy_seconds(pids: list[int]) -> float:
    """CPU of these processes; to the microsecond, where `tree_cpu_seconds` counts in hundredths."""
    files = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in files) / 1e9


def load(url: str, topic: str, count: int, senders: int) -> Fields:
    """Send so many and consume them; CPU of both sides, per million of each."""
    import uvloop

    import ternmq
    from benchmarks.peers.meter import own_cpu_seconds

    bodies = [b"%0*d" % (SIZE, number) for number in range(BATCH)]

    async def send(mq: ternmq.Client, times: int) -> None:
        for _ in range(times):
            await mq.send_many(topic, bodies)

    async def consume(mq: ternmq.Client) -> None:
        async with mq.consumer(topic, group="g", prefetch=100_000) as consumer:
            left = count + BATCH
            async for batch in consumer.batches():
                left -= len(batch)
                batch.ack()
                if left <= 0:
                    break
            await consumer.flush()

    async def whole() -> Fields:
        found: Fields = {}
        async with ternmq.connect(url, app="bench") as mq:
            pids = [state.pid for state in await mq.admin.brokers() if state.pid]
            await mq.admin.create_topic(topic)
            await mq.admin.create_group(topic, "g", ternmq.Start())
            await mq.send_many(topic, bodies)
            for name in PARTS:
                cpu, theirs, began = own_cpu_seconds(), busy_seconds(pids), time.monotonic()
                if name == "publish":
                    each = count // BATCH // senders
                    await asyncio.gather(*(send(mq, each) for _ in range(senders)))
                else:
                    await consume(mq)
                took, million = time.monotonic() - began, count / 1e6
                found[name] = {
                    "rate": count / took,
                    "brokers_cpu_s": (busy_seconds(pids) - theirs) / million,
                    "client_cpu_s": (own_cpu_seconds() - cpu) / million,
                }
            await mq.admin.delete_topic(topic)
        return found

    return dict(uvloop.run(whole()))


def compare(rounds: int, count: int, senders: tuple[int, ...], replicas: int) -> list[Fields]:
    """Rounds in turns; what the second group adds, as a part of what one costs."""
    runs: dict[tuple[int, int], list[Fields]] = {}
    with a_cluster(1, replicas) as one, a_cluster(2, replicas) as two:
        for number in range(rounds + 1):
            order = ((1, one), (2, two)) if number % 2 else ((2, two), (1, one))
            for calls in senders:
                for groups, url in order:
                    found = in_process(load, url, f"round-{number}-{calls}", count, calls)
                    if number:  # The first one warms up.
                        runs.setdefault((calls, groups), []).append(found)
    return [
        {"replicas": replicas, "senders": calls, "rounds": rounds, "messages": count, "size": SIZE}
        | _growth(runs[calls, 1], runs[calls, 2])
        for calls in senders
    ]


def _growth(one: list[Fields], two: list[Fields]) -> Fields:
    found: Fields = {}
    both = [0.0, 0.0]
    for name in PARTS:
        least = [_least(runs, name) for runs in (one, two)]
        both = [sum_so_far + each["cpu_s"] for sum_so_far, each in zip(both, least, strict=True)]
        found[name] = {
            "one_group": least[0],
            "two_groups": least[1],
            "cpu_growth": least[1]["cpu_s"] / least[0]["cpu_s"] - 1,
        }
    return found | {"cpu_growth": both[1] / both[0] - 1}


def _least(runs: list[Fields], name: str) -> Fields:
    """CPU seconds per million of both sides, each the least, and together; the best rate."""
    parts = [run[name] for run in runs]
    brokers, client = (
        min(part[side] for part in parts) for side in ("brokers_cpu_s", "client_cpu_s")
    )
    return {
        "cpu_s": brokers + client,
        "brokers_cpu_s": brokers,
        "client_cpu_s": client,
        "rate": max(part["rate"] for part in parts),
    }


def table(results: list[Fields]) -> list[str]:
    """One line per setting and part, in CPU seconds per million."""
    lines = ["| replicas | calls under way | | one group | two groups | growth |", "|---" * 6 + "|"]
    for result in results:
        for name in PARTS:
            part = result[name]
            one, two = part["one_group"]["cpu_s"], part["two_groups"]["cpu_s"]
            lines.append(
                f"| {result['replicas']} | {result['senders']} | {name} | {one:.3f} | {two:.3f} |"
                f" {part['cpu_growth']:+.1%} |"
            )
    return lines


def verdicts(results: list[Fields]) -> list[str]:
    lines = []
    for result in results:
        grown = result["cpu_growth"]
        word = "met   " if grown <= GROWTH_MAX else "MISSED"
        lines.append(
            f"{word} CPU with two broker groups over one, {result['replicas']} replicas, "
            f"{result['senders']} calls under way: {grown:+.1%}; asked: at most +{GROWTH_MAX:.0%}"
        )
    return lines


def measure(
    *,
    quick: bool,
    rounds: int = 12,
    senders: tuple[int, ...] = SENDERS,
    replicas: tuple[int, ...] = REPLICAS,
) -> list[Fields]:
    rounds, count = (1, 160_000) if quick else (rounds, 800_000)
    return [found for each in replicas for found in compare(rounds, count, senders, each)]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="A small load, to see that it runs.")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--senders", type=_numbers, default=SENDERS, help="Calls under way at once")
    parser.add_argument("--replicas", type=_numbers, default=REPLICAS, help="Of each broker group.")
    wanted = parser.parse_args()
    results = measure(
        quick=wanted.quick, rounds=wanted.rounds, senders=wanted.senders, replicas=wanted.replicas
    )
    print(json.dumps(results, indent=2))
    print("\n".join([*table(results), *verdicts(results)]), file=sys.stderr)


if __name__ == "__main__":
    main()
