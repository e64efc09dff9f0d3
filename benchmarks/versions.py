"""`python -m benchmarks.versions --base REF`: is this tree slower than an older one?

Starts a node of each version and a client of the same version, and lets them take turns: a short
round of every workload here, the same there, the other way round the next time. Whatever else the
machine does hits both alike, so a ratio of medians shows a few per cent where rates show nothing.
Prints CPU per message of broker and client, and latency; fails (`--limit`) if CPU grew by more.

Run it before a release, and for the note of every change on the path of a message. The older tree
is checked out into a temporary directory and needs the same installed packages as this one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.peers.process import ServerProcess, free_ports

HERE = Path(__file__).resolve().parent
COUNTS = {
    "lone": 600,
    "callers": 6_400,
    "bulk": 320_000,
    "consume": 20_000,
    "topics": 6_000,
    "connections": 5_000,
    "pipelined": 40_000,
    "plain": 3_000,
    "half": 2_000,
    "awaited": 1_000,
    "fine": 150_000,
    "failing": 150_000,
}
WARM_UP = 2
LIMIT = 1.05


@dataclass(frozen=True, slots=True)
class Round:
    """What one turn of one version cost: seconds a message, and messages a second."""

    broker: float
    client: float
    p50: float
    p99: float
    rate: float


class Version:
    """A node and a client of one source tree, for as long as its block lasts."""

    def __init__(self, name: str, tree: Path, directory: Path) -> None:
        self.name = name
        self.rounds: dict[str, list[Round]] = {}
        env = {"PYTHONPATH": str(tree / "src"), "TERN_CONSOLE": "false"}
        [port] = free_ports(1)
        data = str(directory / "data")
        command = [sys.executable, "-m", "ternmq.cli.main", "up", "--data-dir", data]
        self.server = ServerProcess([*command, "--ports", str(port)], directory, env)
        log = directory / "server.log"
        self.server.wait_until(lambda: b"ready tern://" in log.read_bytes(), 20)
        script = [sys.executable, str(HERE / "version_client.py"), f"tern://127.0.0.1:{port}"]
        self.client = subprocess.Popen(
            script, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def turn(self, workload: str, *, keep: bool) -> None:
        """One round of a workload."""
        assert self.client.stdin is not None and self.client.stdout is not None
        cpu = cpu_seconds(self.server.pid)
        print(workload, COUNTS[workload], file=self.client.stdin, flush=True)
        answer = self.client.stdout.readline()
        if not answer:
            raise SystemExit(f"the client of {self.name} ended in {workload!r}; its error is above")
        said = json.loads(answer)
        spent = cpu_seconds(self.server.pid) - cpu
        took = sorted(said["took"]) or [said["seconds"] / said["done"]]
        p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
        rate = said["done"] / said["seconds"]
        seen = Round(spent / said["done"], said["cpu"] / said["done"], p50, p99, rate)
        if keep:
            self.rounds.setdefault(workload, []).append(seen)

    def middle(self, workload: str, field: str) -> float:
        return median(getattr(one, field) for one in self.rounds[workload])

    def close(self) -> None:
        self.client.kill()
        self.client.wait()
        self.server.stop()


def cpu_seconds(pid: int) -> float:
    """Of all threads of a process, in nanoseconds' precision."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def checked_out(ref: str) -> Iterator[Path]:
    """The tree of a commit."""
    with tempfile.TemporaryDirectory(prefix="bench-base-") as directory:
        tree = Path(directory) / "tree"
        git = ["git", "-C", str(HERE.parent), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), ref], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measure(base: str, rounds: int, workloads: list[str]) -> tuple[Version, Version]:
    """Both versions, after their rounds."""
    with ExitStack() as stack:
        tree = stack.enter_context(checked_out(base))
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        old = Version(base, tree, work / "old")
        stack.callback(old.close)
        new = Version("here", HERE.parent, work / "new")
        stack.callback(new.close)
        for number in range(-WARM_UP, rounds):
            for workload in workloads:
                for version in (old, new) if number % 2 else (new, old):
                    version.turn(workload, keep=number >= 0)
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return old, new


def report(old: Version, new: Version, console: Console) -> float:
    """The table; returns the worst growth of broker CPU."""
    table = Table("workload", "figure", old.name, new.name, "ratio", title="medians of rounds")
    worst = 0.0
    for workload in new.rounds:
        for field in ("broker", "client", "p50", "p99"):
            before, after = old.middle(workload, field), new.middle(workload, field)
            if field == "broker":
                worst = max(worst, after / before)
            figure = f"{field} CPU µs" if field in ("broker", "client") else f"{field} µs"
            numbers = (f"{before * 1e6:.2f}", f"{after * 1e6:.2f}", f"{after / before:.3f}")
            table.add_row(workload, figure, *numbers)
    console.print(table)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base", required=True, help="the commit or tag to compare with")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workload", action="append", choices=list(COUNTS), help="default: all")
    parser.add_argument("--limit", type=float, help=f"fail above this ratio, e.g. {LIMIT}")
    options = parser.parse_args()
    old, new = measure(options.base, options.rounds, options.workload or list(COUNTS))
    worst = report(old, new, Console())
    if options.limit and worst > options.limit:
        raise SystemExit(f"broker CPU grew to {worst:.3f}; the limit is {options.limit}")


if __name__ == "__main__":
    main()
