"""What looking costs others: single sends of one process, with and without ten watchers.

A node has many topics and a group on each. One process sends single messages, one after the other.
Ten watchers, each with a connection of its own, ask once a second for everything that a console
shows of one page: states of messages, leases, what waits, groups with dead letters, sessions,
senders, figures of the server. Rounds with and without them take turns in one run, so that both see
the same machine; medians over the rounds are compared. With `--console` the watchers are browser
tabs: a real console process, each tab with the live stream of another page open, and one that loads
list pages one after the other; how long those take is told as well, and how much of a core the
console used. With a hundred tabs (`--watchers 100`) that has a goal of its own.
`python -m benchmarks.watchers [--console] [--quick] [--topics N] [--watchers N] [--rounds N]
[--seconds S]`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.own import Fields, _run, in_process

BODY = b"x" * 100
GROWTH_MAX = 0.10
LIST_MS_MAX = 300.0
TABS, TABS_CORE_MAX = 100, 0.05
"""So many tabs use at most so much of a core."""
EVERY_S = 1.0
WARM_S = 600.0
"""A console that sees ten thousand groups for the first time on a busy machine."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
AT_ONCE = 50
BUSY = "watched"

_spawn = multiprocessing.get_context("spawn")


def fill_load(url: str, topics: int) -> None:
    """Topics with a group and a message each, and one in which messages fail and are held."""

    async def work(mq: Any) -> None:
        async def make(number: int) -> None:
            name = f"topic.{number:05}"
            await mq.send(name, BODY)
            await mq.admin.create_group(name, f"group.{number:05}")

        for first in range(0, topics, AT_ONCE):
            await asyncio.gather(*map(make, range(first, min(topics, first + AT_ONCE))))
        await mq.send_many(BUSY, [BODY] * 2_000)
        consumer = await mq.consumer(BUSY, group="g", start="earliest", prefetch=4_000).start()
        taken = 0
        async for message in consumer:
            message.retry(after=3_600, error=ValueError(f"row {message.sequence % 7}"))
            taken += 1
            if taken == 1_000:
                break
        await consumer.flush()
        await consumer.close()

    _run(url, work)


def send_load(url: str, seconds: float) -> list[float]:
    """How long each single send took."""

    async def work(mq: Any) -> list[float]:
        took: list[float] = []
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            await mq.send("sent", BODY)
            took.append(time.monotonic() - began)
        return took

    return list(_run(url, work))


def watch_load(url: str, watchers: int, stop: Any, looks: Any) -> None:
    """Look once a second, all of them, until told to stop."""

    async def watch(mq: Any) -> None:
        admin = mq.admin
        while not stop.is_set():
            began = time.monotonic()
            await admin.message_states(BUSY, list(range(20)))
            await admin.leases(BUSY, "g")
            await admin.waiting(BUSY, "g")
            await admin.dead_groups()
            await admin.sessions(limit=100)
            await admin.senders()
            await admin.figures()
            looks.put(time.monotonic() - began)
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))

    async def whole(mq: Any) -> None:
        import ternmq

        others = [await ternmq.connect(url, app="watcher") for _ in range(watchers)]
        await asyncio.gather(*map(watch, others))
        for other in others:
            await other.close()

    _run(url, whole)


PAGES = ("/", "/topics", "/groups", "/topics?sort=rate", "/groups?sort=ready", "/groups?q=042")
LISTS = ("/topics", "/groups", "/groups?sort=dead", "/api/v1/topics", "/api/v1/groups")


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def console_load(url: str, tabs: int, stop: Any, looks: Any) -> None:
    """Tabs with a live stream each, and list pages once a second, until told to stop; the last
    thing told is how much of a core the console used."""
    import httpx

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    origin = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "ternmq.cli.main", "console", "--url", url]
    console = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)

    async def tab(http: httpx.AsyncClient, page: str) -> None:
        at = f"/live?at={quote(page, safe='')}"
        async with http.stream("GET", at, timeout=None) as answer:
            async for _ in answer.aiter_bytes():
                if stop.is_set():
                    return

    async def lists(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            for page in LISTS:
                began = time.monotonic()
                answer = await http.get(page, timeout=30)
                assert answer.status_code == 200, (page, answer.status_code)
                looks.put(time.monotonic() - began)
            await asyncio.sleep(EVERY_S)

    async def work() -> None:
        limits = httpx.Limits(max_connections=tabs + 10)
        async with httpx.AsyncClient(base_url=origin, limits=limits) as http:
            while True:
                try:
                    if (await http.get("/groups", timeout=60)).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.2)
                if console.poll() is not None:
                    raise RuntimeError(f"the console ended with {console.returncode}")
            async with asyncio.TaskGroup() as group:
                streams = [
                    group.create_task(tab(http, PAGES[at % len(PAGES)])) for at in range(tabs)
                ]
                began, used = time.monotonic(), cpu_s(console.pid)
                await lists(http)
                looks.put(("core", (cpu_s(console.pid) - used) / (time.monotonic() - began)))
                for stream in streams:
                    stream.cancel()

    try:
        asyncio.run(work())
    finally:
        console.terminate()
        console.wait(30)


def p99_ms(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)] * 1e3


def one_round(url: str, watchers: int, seconds: float, *, console: bool = False) -> Fields:
    """Sends with so many watchers; 0: nobody looks."""
    stop, looks = _spawn.Event(), _spawn.Queue()
    load = console_load if console else watch_load
    watching = _spawn.Process(target=load, args=(url, watchers, stop, looks))
    times: list[float] = []
    core = 0.0
    if watchers:
        watching.start()
        looks.get(timeout=WARM_S)
        while not looks.empty():
            looks.get()  # The first ones: everything was new.
    took = in_process(send_load, url, seconds)
    stop.set()
    while watchers and (watching.is_alive() or not looks.empty()):
        try:
            told = looks.get(timeout=1)
        except queue.Empty:
            continue
        if isinstance(told, tuple):
            core = told[1]
        else:
            times.append(told)
    return {
        "p50_ms": statistics.median(took) * 1e3,
        "p99_ms": p99_ms(took),
        "look_ms": statistics.median(times) * 1e3 if times else 0.0,
        "look_max_ms": max(times) * 1e3 if times else 0.0,
        "console_core": core,
    }


def measure(url: str, options: argparse.Namespace) -> Fields:
    in_process(fill_load, url, options.topics, deadline=900.0)
    alone, watched = [], []
    for _ in range(options.rounds):
        alone.append(one_round(url, 0, options.seconds))
        watched.append(one_round(url, options.watchers, options.seconds, console=options.console))
    found: Fields = {}
    for name, rounds in (("alone", alone), ("watched", watched)):
        for figure in ("p50_ms", "p99_ms", "look_ms", "look_max_ms", "console_core"):
            found[f"{name}_{figure}"] = statistics.median(each[figure] for each in rounds)
    found["growth"] = found["watched_p99_ms"] / found["alone_p99_ms"] - 1
    return found


def main() -> None:
    from benchmarks.peers.ternmq import TernPeer

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--console", action="store_true")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    if options.quick:
        options.topics, options.rounds, options.seconds = 500, 2, 3.0
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        try:
            node.start(Path(directory))
            found = measure(node.url(), options)
        finally:
            node.stop()
    for name, value in found.items():
        print(f"{name}: {value:,.3f}")
    verdicts = {
        f"p99 of single sends grows by {GROWTH_MAX:.0%} at most": found["growth"] <= GROWTH_MAX
    }
    if options.console:
        lists = found["watched_look_ms"] <= LIST_MS_MAX
        verdicts[f"list pages within {LIST_MS_MAX:.0f} ms"] = lists
    if options.console and options.watchers >= TABS:
        core = found["watched_console_core"] <= TABS_CORE_MAX
        verdicts[f"{options.watchers} tabs use {TABS_CORE_MAX:.0%} of a core at most"] = core
    for goal, met in verdicts.items():
        print(f"{goal}: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
