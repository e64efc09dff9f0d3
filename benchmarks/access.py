"""`python -m benchmarks.access`: what logins, rights and quotas cost, by CPU and not by the clock.

Two nodes on one machine take turns, one of them with `security = true` (without TLS: that has its
own price, `benchmarks.tls`): bulk in long lists and in lists of ten. Goal: at most 1 % of the
broker's CPU, which shows on a machine that does nothing else: at a load of 12 rounds of one and the
same node differ by half. Then logins by password at the meta server, of
a client that has its salt: at least 500 a second of the server's own time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.own import Fields, in_process, publish
from benchmarks.peers.process import tree_cpu_seconds
from benchmarks.peers.ternmq import TernPeer

COST_MAX = 0.01
LOGINS_MIN = 500.0
LOADS = {"lists of 4,000": 4_000, "lists of 10": 10}


def login_load(url: str, pid: int, password: str, count: int) -> Fields:
    """Connections that log in and go."""
    import uvloop

    from ternmq.client.transport.user_login import UserLogin
    from ternmq.rpc.connection import Connection
    from ternmq.security.access.secret import Secret
    from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello

    async def work() -> Fields:
        login = UserLogin("admin", Secret(password))
        hello = Hello(protocol=PROTOCOL_VERSION, app="bench", version="0", session=bytes(16))
        address = url.rpartition("@")[2]

        async def once() -> None:
            connection = await Connection.open(address, login.greeting(hello), timeout=60)
            await connection.close()

        await once()
        before = tree_cpu_seconds([pid])
        for _ in range(count // 20):
            await asyncio.gather(*(once() for _ in range(20)))
        return {"logins_s": count / max(1e-3, tree_cpu_seconds([pid]) - before)}

    return dict(uvloop.run(work()))


def measure(*, count: int, rounds: int) -> Fields:
    """Both nodes in turn, so that what else the machine does is shared."""
    found: dict[str, list[Fields]] = {"plain": [], "security": []}
    with tempfile.TemporaryDirectory(prefix="bench-access-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        nodes = {
            "plain": TernPeer(flush="async"),
            "security": TernPeer(flush="async", security=True),
        }
        try:
            for kind, node in nodes.items():
                (folder / kind).mkdir()
                node.start(folder / kind)
            filed = folder / "security" / "data" / "admin-password"
            os.environ["TERN_PASSWORD_FILE"] = str(filed)
            for number in range(rounds):
                for kind, node in nodes.items():
                    figures = _round(node, count)
                    print(f"{number} {kind}: {json.dumps(figures)}", file=sys.stderr, flush=True)
                    found[kind].append(figures)
            secured, password = nodes["security"], filed.read_text(encoding="ascii").strip()
            logins = in_process(login_load, secured.url(), secured.pids()[0], password, 1_000)
        finally:
            for node in nodes.values():
                node.stop()
    return {"runs": found, "costs": costs(found), **logins, "load": os.getloadavg()[0]}


def _round(node: TernPeer, count: int) -> Fields:
    url, pid = node.url(), node.pids()[0]
    return {
        name: publish(url, pid, count=count if batch > 10 else count // 4, batch=batch)
        for name, batch in LOADS.items()
    }


def costs(found: dict[str, list[Fields]]) -> dict[str, float]:
    """How much more CPU a broker takes for a message, by medians of the rounds."""

    def cpu(kind: str, name: str) -> float:
        return statistics.median(run[name]["broker_cpu_s_per_million"] for run in found[kind])

    return {name: cpu("security", name) / cpu("plain", name) - 1 for name in LOADS}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few and small rounds")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    count, rounds = (2_000_000, 3) if options.quick else (8_000_000, options.rounds)
    found = measure(count=count, rounds=rounds)
    for name, cost in found["costs"].items():
        met = "met   " if cost <= COST_MAX else "MISSED"
        print(f"{met} rights, {name}: {cost:+.1%} of a broker's CPU, at most {COST_MAX:.0%}")
    met = "met   " if found["logins_s"] >= LOGINS_MIN else "MISSED"
    print(f"{met} logins: {found['logins_s']:.0f} a second of the server's time")
    print(f"load of the machine: {found['load']:.1f}")


if __name__ == "__main__":
    main()
