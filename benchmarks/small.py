"""`python -m benchmarks.small [--quick]`: the figures of small requests, asked beside measured.

One run, about six minutes with `--quick`, on a machine that does nothing else. A node and a client
of this tree take short rounds of every workload of `benchmarks.versions`, in turns; medians count.
Redis (AOF always) and Kafka run the same workload where they are installed, else their lines say
so. Rates on a busy machine say little; CPU a message says more, and is printed beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import outbox
from benchmarks.machine import bare_loop_rate, fdatasync_profile
from benchmarks.own import publish
from benchmarks.peers import run as peers
from benchmarks.peers.ternmq import TernPeer
from benchmarks.peers.workloads import TITLES, Settings
from benchmarks.run import BATCH_BYTES
from benchmarks.versions import COUNTS, HERE, Version

ROUNDS_QUICK, ROUNDS = 7, 25
PEER_LIMIT_S = 60.0
PEER_WORKLOADS = ("calls", "single")


class Line(NamedTuple):
    """One figure of the issue. Without a value it could not be measured here."""

    name: str
    asked: float
    side: str
    value: float | None
    more: str = ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value <= self.asked if self.side == "at most" else self.value >= self.asked


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def own_rounds(rounds: int) -> Version:
    """This tree, after its rounds."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        version = Version("here", HERE.parent, Path(directory))
        try:
            for number in range(-1, rounds):
                for workload in COUNTS:
                    version.turn(workload, keep=number >= 0)
                say(f"round {number + 1} of {rounds}")
        finally:
            version.close()
    return version


def own_lines(here: Version) -> list[Line]:
    """What needs no peer."""

    def cpu(workload: str) -> str:
        broker, client = here.middle(workload, "broker"), here.middle(workload, "client")
        return f"CPU µs: client {client * 1e6:.1f}, broker {broker * 1e6:.1f}"

    def rate(workload: str) -> float:
        return here.middle(workload, "rate")

    failing = rate("failing") / rate("fine")
    topics = here.middle("topics", "client") * 1e6, here.middle("topics", "broker") * 1e6
    most, least = "at most", "at least"
    return [
        Line("lone caller, p99 ms", 0.8, most, here.middle("lone", "p99") * 1e3, cpu("lone")),
        Line("64 callers, messages/s", 120_000, least, rate("callers"), cpu("callers")),
        Line("500 connections, /s", 40_000, least, rate("connections"), cpu("connections")),
        Line("1,000 topics, client CPU µs", 30, most, topics[0]),
        Line("1,000 topics, broker CPU µs", 20, most, topics[1]),
        Line("half : plain, one message", 2.5, most, rate("plain") / rate("half"), cpu("half")),
        Line("1 % failing, bare loop", 0.8, least, failing, cpu("failing")),
        Line("awaited acks/s, one consumer", 15_000, least, rate("awaited"), cpu("awaited")),
    ]


def peer_lines(here: Version) -> list[Line]:
    """Beside peers, each with its own limit of time."""
    found: dict[tuple[str, str], float] = {}
    for family in ("redis", "kafka", "ternmq"):
        workloads = ("latency",) if family == "ternmq" else PEER_WORKLOADS
        report = peers.measure([family], Settings(count=200_000), workloads, PEER_LIMIT_S, told=say)
        for result in report.results:
            value = result.rate if result.workload == TITLES["calls"] else result.p50_ms
            if result.workload == TITLES["latency"]:
                value = result.p99_ms
            if value is not None:
                found[result.name, result.workload] = value
    redis = found.get(("redis always", TITLES["single"]))
    kafka = found.get(("kafka", TITLES["calls"]))
    lone = here.middle("lone", "p50") * 1e3
    calls = here.middle("pipelined", "rate")
    paced = found.get(("ternmq sync", TITLES["latency"]))
    missing = "not installed here"
    return [
        Line(
            "lone caller beside Redis AOF always",
            1.15,
            "at most",
            redis and lone / redis,
            f"{lone:.3f} / {redis:.3f} ms" if redis else f"{lone:.3f} ms; Redis: {missing}",
        ),
        Line(
            "pipelined single sends beside Kafka",
            2.0,
            "at least",
            kafka and calls / kafka,
            f"{calls:,.0f}/s" + ("" if kafka else f"; Kafka: {missing}"),
        ),
        Line("p99 ms at 10 k/s", 2.0, "at most", paced),
    ]


def relay_lines(quick: bool) -> list[Line]:
    """The ordered outbox relay, on the databases that are installed."""
    options = argparse.Namespace(
        figures=["relay-ordered"], quick=quick, databases="postgresql,mariadb"
    )
    found = outbox.measure(options, told=say)
    lines = []
    for kind in ("postgresql", "mariadb"):
        one = found.get(f"relay-ordered {kind}")
        value = None if one is None else float(one["rate"])
        lines.append(Line(f"ordered relay, {kind}, rows/s", 10_000, "at least", value))
    return lines


def bulk_lines(quick: bool) -> list[Line]:
    """Bulk publish as a share of a bare socket -> writev -> fdatasync loop."""
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        sync = fdatasync_profile(directory)
        floor = bare_loop_rate(directory, BATCH_BYTES)
        node = TernPeer(flush="sync")
        node.start(directory)
        try:
            count = 1_000_000 if quick else 4_000_000
            best = max(publish(node.url(), node.pids()[0], count=count)["rate"] for _ in range(3))
        finally:
            node.stop()
    share = best * BATCH_BYTES / 1_000 / floor
    more = f"{best:,.0f}/s; fdatasync p50 {sync['p50_ms']:.2f} p99 {sync['p99_ms']:.2f} ms"
    return [Line("bulk publish, share of the bare loop", 0.7, "at least", share, more)]


def table(lines: list[Line]) -> Table:
    shown = Table("figure", "asked", "measured", "", "more", title="Small requests")
    for line in lines:
        mark = {None: "-", True: "met", False: "MISSED"}[line.met]
        value = "-" if line.value is None else f"{line.value:,.2f}"
        shown.add_row(line.name, f"{line.side} {line.asked:,g}", value, mark, line.more)
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, about six minutes")
    parser.add_argument("--own", action="store_true", help="no peers, no databases: two minutes")
    options = parser.parse_args()
    began = time.monotonic()
    here = own_rounds(ROUNDS_QUICK if options.quick else ROUNDS)
    lines = own_lines(here)
    parts: list[Callable[[], list[Line]]] = [lambda: bulk_lines(options.quick)]
    if not options.own:
        parts += [lambda: peer_lines(here), lambda: relay_lines(options.quick)]
    for part in parts:
        try:
            lines += part()
        except Exception as error:  # One that cannot run here must not cost the rest.
            say(f"left out: {type(error).__name__}: {error}")
    Console(width=None if sys.stdout.isatty() else 160).print(table(lines))
    print(f"took {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
