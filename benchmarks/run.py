"""`make bench`: everything in one run on one machine, written to benchmarks/results.

First the machine's floor (fdatasync, a bare socket -> writev -> fdatasync loop), then TernMQ's own
figures beside their targets, then the peers by the same workloads, then ratios. Rates on a shared
machine are noise; ratios and CPU per million messages travel better. `--quick` for a look.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import cluster, delay, delivery, failover, outbox, own, spark, tls, transactions
from benchmarks.machine import bare_loop_rate, describe, fdatasync_profile
from benchmarks.peers import run as peers
from benchmarks.peers.driver import Result
from benchmarks.peers.ternmq import TernPeer
from benchmarks.peers.workloads import Settings

RESULTS = Path(__file__).resolve().parent / "results"
BATCH_BYTES = 104_264  # A frame of the bare loop: a thousand 100-byte bodies as one batch.


def say(text: str) -> None:
    """Progress goes to stderr; the report goes to stdout."""
    print(text, file=sys.stderr, flush=True)


def measure_own(quick: bool) -> dict[str, Any]:
    """A fresh node for each figure that a large log would disturb."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        node.start(Path(directory))
        try:
            url, pid = node.url(), node.pids()[0]
            count = 1_000_000 if quick else 6_000_000
            runs = [own.publish(url, pid, count=count) for _ in range(3)]
            found["publish"] = max(runs, key=lambda run: run["rate"])
            say(f"publish: {found['publish']}")
            found["connections"] = own.connections(url, pid)
            say(f"500 connections: {found['connections']}")
            found["delivery"] = delivery.measure(url, pid, quick=quick)
            for line in delivery.verdicts(found["delivery"]):
                say(line)
            found["transactions"] = transactions.measure(url, pid, quick=quick)
            say(f"transactions: {found['transactions']}")
            found["shapes"] = own.bodies_of_batches(url, pid)
            say(f"shapes: {found['shapes']}")
            if not quick:
                found["backlog"] = own.backlog(url, pid)
                say(f"backlog: {found['backlog']}")
        finally:
            node.stop()
    found["delay"] = delay.measure(delay.defaults(quick=quick), told=say)
    found["outbox"] = outbox.measure(outbox.defaults(quick=quick), told=say)
    # In short: whole distributions take their time, `python -m benchmarks.failover`.
    found["cluster"] = cluster.measure(quick=quick, rounds=3, replicas=(0,))
    found["failover"] = failover.measure(quick=True, told=say)
    found["tls"] = tls.measure(count=200_000 if quick else 4_000_000, rounds=1 if quick else 3)
    say(f"tls: {found['tls']['shares']}")
    found["spark"] = spark.measure(500_000 if quick else 4_000_000, full=not quick, told=say)
    return found


def targets(machine: dict[str, Any], mine: dict[str, Any], results: list[Result]) -> list[str]:
    """One line per figure of the issue: what was asked, what was measured."""
    by = {result.workload: result for result in results if result.name == "ternmq sync"}
    publish = mine["publish"]
    floor = machine["bare_loop_bytes_s"]
    sync = machine["fdatasync"]
    share = publish["rate"] * BATCH_BYTES / 1_000 / floor
    lines = [
        ("publish, send_many, sync, one process", publish["rate"], 1e6, "at least"),
        ("  broker CPU s per million", publish["broker_cpu_s_per_million"], 0.5, "at most"),
        ("  client CPU s per million", publish["client_cpu_s_per_million"], 0.3, "at most"),
        ("  share of the bare loop's bytes/s", share, 0.5, "at least"),
        ("500 connections, single sends", mine["connections"]["rate"], 20_000, "at least"),
    ]
    wanted = {
        "consume": (1e6, "at least", lambda r: r.rate),
        "consume one by one": (250_000, "at least", lambda r: r.rate),
        "single, 64 callers": (30_000, "at least", lambda r: r.rate),
        "single, 1 caller": (2 * sync["p50_ms"], "at most", lambda r: r.p50_ms),
        "latency at 10 k/s": (2.0, "at most", lambda r: r.p50_ms),
        "fan-out, 50 groups": (1e6, "at least", lambda r: r.rate),
    }
    for workload, (target, side, pick) in wanted.items():
        if workload in by:
            lines.append((workload, pick(by[workload]) or 0.0, target, side))
    if "latency at 10 k/s" in by:
        p99 = by["latency at 10 k/s"].p99_ms or 0.0
        lines.append(("  p99 ms against fdatasync p99", p99, 2.5 * sync["p99_ms"], "at most"))
    if "backlog" in mine:
        lines.append(
            ("publish behind 10 M unread / empty", mine["backlog"]["ratio"], 0.9, "at least")
        )
    lines += transactions.targets(mine["transactions"])
    lines += delay.targets(mine["delay"])
    lines += outbox.targets(mine["outbox"])
    lines += tls.targets(mine["tls"])
    lines += spark.targets(mine["spark"])
    return [_verdict(*line) for line in lines]


def ratios(results: list[Result]) -> list[str]:
    """TernMQ over each peer, workload by workload; for p99 how many times shorter."""
    mine = {result.workload: result for result in results if result.name == "ternmq sync"}
    lines = []
    for result in results:
        ours = mine.get(result.workload)
        if result.name.startswith("ternmq") or ours is None:
            continue
        text = f"{result.name:24} {result.workload:22}"
        if ours.rate and result.rate:
            text += f" rate x{ours.rate / result.rate:7.1f}"
        if ours.p99_ms and result.p99_ms:
            text += f" p99 x{result.p99_ms / ours.p99_ms:6.1f} shorter"
        lines.append(text)
    return lines


def _verdict(name: str, value: float, target: float, side: str) -> str:
    met = value >= target if side == "at least" else value <= target
    return f"{'met   ' if met else 'MISSED'} {name:44} {value:>14,.3f}  {side} {target:,.3f}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller counts, no backlog")
    parser.add_argument("--peers", default=",".join(peers.FAMILIES), help="comma-separated")
    options = parser.parse_args()
    families = [name for name in options.peers.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        machine = describe(directory)
        machine["fdatasync"] = fdatasync_profile(directory)
        machine["bare_loop_bytes_s"] = bare_loop_rate(directory, BATCH_BYTES)
    say(f"floor: {machine}")
    mine = measure_own(options.quick)
    settings = Settings(count=500_000) if options.quick else Settings()
    report = peers.measure(families, settings, told=say)
    verdicts, beside = targets(machine, mine, report.results), ratios(report.results)
    verdicts += delivery.verdicts(mine["delivery"])
    verdicts += cluster.verdicts(mine["cluster"]) + failover.verdicts(mine["failover"])
    print(
        "\n".join(["TernMQ against its targets", *verdicts, "", "TernMQ beside its peers", *beside])
    )
    for peer, reason in report.left_out.items():
        print(f"left out: {peer}: {reason}")
    RESULTS.mkdir(exist_ok=True)
    stamp = machine["at"].replace(":", "").replace("-", "")[:15]
    target = RESULTS / f"{stamp}-{machine['commit'] or 'unknown'}.json"
    content = {
        "machine": machine,
        "own": mine,
        **report.as_dict(),
        "targets": verdicts,
        "ratios": beside,
    }
    target.write_text(json.dumps(content, indent=2) + "\n")
    print(f"written to benchmarks/results/{target.name}")


if __name__ == "__main__":
    main()
