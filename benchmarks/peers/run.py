"""`python -m benchmarks.peers.run`: measures the peers one after another and prints a table.

Each peer starts in a temporary directory that goes away with it. A peer that is not there, does not
start, or fails half way is a line in the report; the others still run. The whole run has a limit:
what would begin after it is named as left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from benchmarks.peers.driver import Peer, Result
from benchmarks.peers.workloads import TITLES, WORKLOADS, Bench, Settings, WorkloadFailed

FAMILIES = {
    "ternmq": "ternmq",
    "redis": "redis_streams",
    "nats": "nats_jetstream",
    "rabbitmq": "rabbitmq",
    "kafka": "kafka",
    "rocketmq": "rocketmq",
}
"""The name on the command line, and the module that knows the peer."""
PEER_LIMIT_SECONDS = 100.0
"""Of each variant of a peer: after this none of its workloads begins, and what runs then ends at
its own deadline. So a slow one costs itself its last workloads, never another its place."""


@dataclass(slots=True)
class Report:
    """What a run brought: results, versions by peer, and why others are missing."""

    results: list[Result] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-able fields."""
        return {
            "results": [result.as_dict() for result in self.results],
            "versions": self.versions,
            "left_out": self.left_out,
        }


def peers(families: Iterable[str]) -> list[Peer]:
    """Every variant of the named families."""
    found: list[Peer] = []
    for family in families:
        module = importlib.import_module(f"benchmarks.peers.{FAMILIES[family]}")
        found.extend(module.variants())
    return found


def measure(
    families: Iterable[str],
    settings: Settings,
    workloads: Iterable[str] = tuple(WORKLOADS),
    limit_seconds: float = PEER_LIMIT_SECONDS,
    told: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measure the peers one after another, each for at most `limit_seconds`; `told` hears a line
    for each step."""
    report = Report()
    names = list(workloads)
    for peer in peers(families):
        reason = peer.available()
        if reason is not None:
            report.left_out[peer.name] = reason
            told(f"{peer.name}: left out, {reason}")
            continue
        try:
            report.versions[peer.name] = peer.version()
            stop_at = time.monotonic() + limit_seconds
            _measure_peer(peer, settings, names, stop_at, report, told)
        except Exception as error:
            report.left_out[peer.name] = f"{type(error).__name__}: {error}"
            told(f"{peer.name}: failed, {error}")
    return report


def _measure_peer(
    peer: Peer,
    settings: Settings,
    workloads: list[str],
    stop_at: float,
    report: Report,
    told: Callable[[str], None],
) -> None:
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as directory:
        try:
            began = time.monotonic()
            peer.start(Path(directory))
            told(f"{peer.name}: started in {time.monotonic() - began:.1f} s")
            bench = Bench(peer=peer, settings=settings, recipe=peer.client(), pids=peer.pids())
            for workload in workloads:
                if time.monotonic() > stop_at:
                    report.left_out[f"{peer.name}: {workload}"] = "its time limit was reached"
                    continue
                began = time.monotonic()
                try:
                    result = WORKLOADS[workload](bench)
                except WorkloadFailed as error:
                    result = bench.result(TITLES[workload], rate=None, note=f"failed: {error}")
                report.results.append(result)
                told(f"{peer.name}: {_line(result)} [{time.monotonic() - began:.1f} s]")
        finally:
            peer.stop()


def _line(result: Result) -> str:
    rate = "-" if result.rate is None else f"{result.rate:,.0f}/s"
    times = "" if result.p50_ms is None else f", p50 {result.p50_ms:.2f} p99 {result.p99_ms:.2f} ms"
    return f"{result.workload}: {rate}{times} {result.note}"


def table(report: Report) -> Table:
    """The report as a table: one row for each peer and workload."""
    shown = Table(title="Peers, 100-byte bodies, Python clients")
    for heading in ("peer", "workload"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("rate /s", "client CPU s/M", "broker CPU s/M", "p50 ms", "p99 ms"):
        shown.add_column(heading, justify="right")
    shown.add_column("note")
    previous = ""
    for result in report.results:
        if result.name != previous:
            shown.add_section()
            shown.add_row(f"[bold]{result.name}[/bold]", "", "", "", "", "", "", result.durability)
            previous = result.name
        shown.add_row(
            "",
            result.workload,
            _number(result.rate, 0),
            _number(result.client_cpu_s_per_million, 2),
            _number(result.broker_cpu_s_per_million, 2),
            _number(result.p50_ms, 2),
            _number(result.p99_ms, 2),
            result.note,
        )
    return shown


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=",".join(FAMILIES), help="comma-separated families")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="comma-separated")
    parser.add_argument(
        "--count", type=int, default=Settings().count, help="most messages published"
    )
    parser.add_argument(
        "--seconds", type=float, default=Settings().seconds, help="time box of each"
    )
    parser.add_argument("--limit", type=float, default=PEER_LIMIT_SECONDS, help="of each peer")
    parser.add_argument("--json", type=Path, help="write the report here as well")
    options = parser.parse_args()
    families = [name for name in options.peers.split(",") if name]
    workloads = [name for name in options.workloads.split(",") if name]
    if unknown := [name for name in families if name not in FAMILIES]:
        parser.error(f"unknown peers {unknown}; known: {', '.join(FAMILIES)}")
    if unknown := [name for name in workloads if name not in WORKLOADS]:
        parser.error(f"unknown workloads {unknown}; known: {', '.join(WORKLOADS)}")
    # A TERM unwinds like Ctrl-C does, so that the server of the moment is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = measure(
        families,
        Settings(count=options.count, seconds=options.seconds),
        workloads,
        options.limit,
        told=lambda line: print(line, file=sys.stderr, flush=True),
    )
    Console(width=None if sys.stdout.isatty() else 200).print(table(report))
    for name, version in report.versions.items():
        print(f"{name}: {version}")
    for name, reason in report.left_out.items():
        print(f"left out: {name}: {reason}")
    if options.json:
        machine = describe(Path(tempfile.gettempdir()))
        options.json.write_text(
            json.dumps({"machine": machine, **report.as_dict()}, indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
