"""Calls of the official RocketMQ 5 Go client: TernMQ's gateway beside RocketMQ's own proxy.

`python -m benchmarks.gateway --seconds 5`: one server at a time, the same client, bodies of 200
bytes, plain text (`--tls`: as the client does by itself). Said are messages per second, per second
of the servers' CPU (gateway and broker, or proxy and broker), and the times of single calls, for 1,
16 and 256 callers that send, and 16 that receive up to 32 and ack each. TernMQ syncs before it
answers; RocketMQ is measured with and without. The client is built with go when it is not in the
cache; RocketMQ comes from `python -m benchmarks.peers.install rocketmq`. What is not there is named
and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.process import (
    CACHE,
    PeerFailed,
    ServerProcess,
    free_ports,
    port_answers,
    tree_cpu_seconds,
)
from benchmarks.peers.rocketmq import RocketPeer

SOURCE = Path(__file__).with_name("gateway_client")
CLIENT = CACHE / "gateway-client-5.1.4"
TOPIC, GROUP = "calls", "calls-g0"
CALLERS = (1, 16, 256)
BODY = 200
WARM_S = 4.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server that is measured: where it listens, and the processes that serve."""

    name: str
    port: int
    pids: list[int]


def client_binary() -> Path:
    """Build the client unless it is there; raises `PeerFailed` where that cannot be done."""
    binary = CLIENT / "client"
    if binary.exists():
        return binary
    if shutil.which("go") is None:
        raise PeerFailed("go is not installed")
    shutil.copytree(SOURCE, CLIENT, dirs_exist_ok=True)
    built = subprocess.run(
        ["sh", "-c", "go mod tidy && go build -o client ."],
        cwd=CLIENT,
        env={**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise PeerFailed(f"go cannot build the client: {built.stderr[-300:]}")
    return binary


@contextmanager
def ternmq_endpoint(folder: Path) -> Iterator[Endpoint]:
    """A node and its gateway."""
    first = free_ports(6)[0]
    [port] = free_ports(1)
    tern = [sys.executable, "-m", "ternmq.cli.main"]
    flags = ["--data-dir", str(folder / "data"), "--ports", str(first), "--no-console"]
    process = ServerProcess([*tern, "up", *flags, "--rocketmq", str(port)], folder)
    try:
        process.wait_until(lambda: port_answers(port), 60)
        url = ["--url", f"tern://127.0.0.1:{first}"]
        for words in (["topic", "create", TOPIC], ["group", "create", TOPIC, GROUP]):
            subprocess.run([*tern, *words, *url], check=True, stdout=subprocess.DEVNULL)
        yield Endpoint("TernMQ, synced", port, [process.pid])
    finally:
        process.stop()


@contextmanager
def rocketmq_endpoint(folder: Path, *, sync: bool) -> Iterator[Endpoint]:
    """RocketMQ 5.5.0, proxy and broker in one JVM."""
    peer = RocketPeer(sync=sync)
    missing = peer.available()
    if missing:
        raise PeerFailed(missing)
    try:
        peer.start(folder)
        name = "RocketMQ, synced" if sync else "RocketMQ, not synced"
        yield Endpoint(name, peer.port, peer.pids())
    finally:
        peer.stop()


def measure(
    client: Path, where: Endpoint, words: list[str], home: str, *, tls: bool
) -> dict[str, float]:
    """One run of the client; figures of one load."""
    environment = {
        **os.environ,
        "HOME": home,
        "rocketmq.client.enableSsl": "true" if tls else "false",
    }
    before = tree_cpu_seconds(where.pids)
    ran = subprocess.run(
        [str(client), f"127.0.0.1:{where.port}", TOPIC, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    cpu = tree_cpu_seconds(where.pids) - before
    if ran.returncode:
        raise PeerFailed(f"the client failed: {ran.stderr[-300:]}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    found["cpu_s"] = cpu
    return found


def run(client: Path, where: Endpoint, seconds: float, *, tls: bool) -> None:
    loads = [["send", str(callers), str(seconds), str(BODY)] for callers in CALLERS]
    loads.append(["consume", "16", str(seconds), GROUP])
    with tempfile.TemporaryDirectory(prefix="gateway-bench-") as home:
        measure(client, where, ["send", "64", str(WARM_S), str(BODY)], home, tls=tls)
        for words in loads:
            found = measure(client, where, words, home, tls=tls)
            count, cpu = found["count"], found["cpu_s"]
            print(
                f"{where.name:22} {words[0]:8} {words[1]:>4} callers"
                f" {count / found['seconds']:9,.0f}/s {count / max(cpu, 0.01):9,.0f}/CPU s"
                f"  p50 {found['p50_ms']:7.2f} ms  p99 {found['p99_ms']:7.2f} ms"
                f"  failed {found['failed']:.0f}",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--only", choices=("ternmq", "rocketmq"))
    given = parser.parse_args()
    try:
        client = client_binary()
    except PeerFailed as failed:
        print(f"left out: {failed}")
        return 1
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {BODY} bytes")
    servers = []
    if given.only != "rocketmq":
        servers.append(ternmq_endpoint)
    if given.only != "ternmq":
        servers += [
            lambda folder: rocketmq_endpoint(folder, sync=False),
            lambda folder: rocketmq_endpoint(folder, sync=True),
        ]
    for start in servers:
        with tempfile.TemporaryDirectory(prefix="gateway-bench-") as folder:
            try:
                with start(Path(folder)) as where:
                    run(client, where, given.seconds, tls=given.tls)
            except PeerFailed as failed:
                print(f"left out: {failed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
