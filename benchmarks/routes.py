"""How long until clients and servers know of a change: two meta servers, real processes.

Four changes, each measured at every one of `WATCHERS` route caches, half of them at each meta
server: a server comes, its role changes, it stops (says goodbye), it is killed. And the standing of
a broker group changed through one meta server, as members hear it that ask the other: with a
registry in SQL the other one looks every third of a second. `killed` is what `server_dead_after_ms`
makes of it; many servers die at once, each at another moment of its heartbeat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from benchmarks.peers.process import ServerProcess, free_ports
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.routes import RouteCache
from ternmq.node.joining.registration import registered
from ternmq.node.joining.remote_directory import RemoteDirectory, remote_directory
from ternmq.rpc.node_proof import Greeting, NodeCredential, NodeIdentity, NodeSecret
from ternmq.wire.messages.hello import BROKER
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import Member, Standing

WATCHERS = 10
KILLED = 20
WAIT_S = 60.0
Times = list[float]


SECRET = "what the servers of this benchmark share"


def hello(group: str = "one") -> Greeting:
    identity = NodeIdentity("realtime", group)
    credential = NodeCredential(NodeSecret(SECRET, "this file"), identity)
    return ClusterAccess(credential=credential).greeting(BROKER)


class Seen:
    """When each cache was first told what is waited for."""

    def __init__(self, caches: list[RouteCache]) -> None:
        self._caches = caches
        self._told = asyncio.Event()
        for cache in caches:
            cache.changed.append(self._told.set)

    async def until(self, true: Callable[[RouteCache], bool], began: float) -> Times:
        waiting, times = list(self._caches), []
        async with asyncio.timeout(WAIT_S):
            while waiting:
                self._told.clear()
                now = time.perf_counter()
                for cache in [each for each in waiting if true(each)]:
                    waiting.remove(cache)
                    times.append(now - began)
                if waiting:
                    await self._told.wait()
        return times


def roles(cache: RouteCache, group: str) -> list[str]:
    servers = cache.routes.servers if cache.routes is not None else []
    return [route.role for route in servers if route.broker_group == group]


async def one_server(addresses: list[str], seen: Seen, group: str) -> dict[str, Times]:
    """It comes, leads, follows, stops."""
    route = Route(broker_group=group, address="127.0.0.1:1")
    member = Member(id=secrets.token_hex(8), name="one", address=route.address)
    async with directory(addresses, group) as names:
        await names.join_group(group, "realtime", member)
        led = await names.lead(group, member.id)
        async with AsyncExitStack() as stack:
            began = time.perf_counter()
            entering = registered(addresses, hello(group), route, member=member.id)
            said = await stack.enter_async_context(entering)
            comes = await seen.until(lambda cache: roles(cache, group) == ["replica"], began)
            began = time.perf_counter()
            said.set_epoch(led.epoch)
            role = await seen.until(lambda cache: roles(cache, group) == ["master"], began)
            began = time.perf_counter()
            stopping = asyncio.create_task(stack.aclose())
            stops = await seen.until(lambda cache: roles(cache, group) == [], began)
            await stopping
    return {"comes": comes, "role": role, "stops": stops}


async def standing(addresses: list[str], samples: int) -> Times:
    """Changed at the first meta server, heard at the second."""
    member = Member(id=secrets.token_hex(8), name="one", address="127.0.0.1:1")
    times: Times = []
    async with directory(addresses[:1], "standing") as here, directory(addresses[1:]) as there:
        heard: asyncio.Queue[tuple[Standing, float]] = asyncio.Queue()
        there.on_standing_changed(lambda each: heard.put_nowait((each, time.perf_counter())))
        await here.join_group("standing", "realtime", member)
        for _ in range(samples):
            began = time.perf_counter()
            led = await here.lead("standing", member.id)
            async with asyncio.timeout(WAIT_S):
                while True:
                    told, at = await heard.get()
                    if told == led:
                        break
            times.append(at - began)
            await asyncio.sleep(secrets.randbelow(300) / 1000)  # Not in step with the looks.
    return times


async def killed(addresses: list[str], seen: Seen) -> Times:
    """A process with many servers is killed; each is off the routes when its time is over."""
    command = [sys.executable, "-m", "benchmarks.routes", "--serve", ",".join(addresses)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    groups = [f"killed{number}" for number in range(KILLED)]
    try:
        async with asyncio.timeout(WAIT_S):
            assert process.stdout is not None
            await process.stdout.readline()
        await seen.until(lambda cache: all(roles(cache, each) for each in groups), 0)
    finally:
        process.kill()
        await process.wait()
    began = time.perf_counter()

    async def gone(group: str) -> Times:
        return await seen.until(lambda cache: not roles(cache, group), began)

    return [each for times in await asyncio.gather(*map(gone, groups)) for each in times]


async def serve_many(addresses: list[str]) -> None:
    """Until killed: servers that registered one after the other, over a heartbeat."""
    async with AsyncExitStack() as stack:
        for number in range(KILLED):
            route = Route(broker_group=f"killed{number}", address=f"127.0.0.1:{number + 2}")
            await stack.enter_async_context(registered(addresses, hello(route.broker_group), route))
            await asyncio.sleep(3.0 / KILLED)
        print("there", flush=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def directory(addresses: list[str], group: str = "one") -> AsyncIterator[RemoteDirectory]:
    cache = RouteCache(addresses, hello(group))
    async with remote_directory(cache) as made:
        yield made
    await cache.close()


async def measure_at(addresses: list[str], samples: int) -> dict[str, Times]:
    caches = [
        RouteCache(addresses if number % 2 else addresses[::-1], hello())
        for number in range(WATCHERS)
    ]
    for cache in caches:
        await cache.refresh()
    seen = Seen(caches)
    found: dict[str, Times] = {"comes": [], "role": [], "stops": []}
    for number in range(samples):
        for name, times in (await one_server(addresses, seen, f"group{number}")).items():
            found[name] += times
    found["standing"] = await standing(addresses, samples)
    found["killed"] = await killed(addresses, seen)
    for cache in caches:
        await cache.close()
    return found


@contextmanager
def meta_servers(folder: Path, registry: str) -> Iterator[list[str]]:
    """Two of them; yields their addresses."""
    secret = folder / "node-secret"
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    ports = free_ports(2)
    servers: list[ServerProcess] = []
    try:
        for port in ports:
            home = folder / str(port)
            command = [
                sys.executable,
                "-m",
                "ternmq.cli.main",
                "meta",
                "serve",
                "--registry",
                registry,
                "--port",
                str(port),
                "--data-dir",
                str(home / "data"),
                "--node-secret-file",
                str(secret),
            ]
            servers.append(ServerProcess(command, home))
            servers[-1].wait_until(partial(is_ready, home / "server.log"), 30)
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        for server in servers:
            server.stop()


def is_ready(log: Path) -> bool:
    return b"ready tern://" in log.read_bytes()


def summary(times: Times) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(times)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {"count": len(ordered)} | {
        name: round(ordered[int(share * last)] * 1000, 1) for name, share in at.items()
    }


def measure(*, quick: bool, registry: str = "") -> dict[str, Any]:
    import uvloop

    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        url = registry or f"sqlite:///{folder / 'registry.db'}"
        with meta_servers(folder, url) as addresses:
            found = uvloop.run(measure_at(addresses, 10 if quick else 100))
        result: dict[str, Any] = {name: summary(times) for name, times in found.items()}
        return result | {"machine": describe(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--registry", default="", help="Where meta keeps names; a SQLite file.")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve_many(options.serve.split(",")))
        return
    json.dump(measure(quick=options.quick, registry=options.registry), sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
