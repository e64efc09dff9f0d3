"""What the HTTP API carries: batches of 1,000 and single requests, beside its own floor.

One node with fsync, one console as a process of its own, one HTTP client in another one. Batches
are measured as messages a second; single requests in turn with requests that the same server
answers with nothing (HEAD of a path that it does not have), so that both see the same machine.
`python -m benchmarks.http_api [--quick] [--rounds N] [--seconds S]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GOAL = 100_000
ROWS = 1_000
BODY = "x" * 100


@asynccontextmanager
async def console(url: str, port: int) -> AsyncIterator[str]:
    """A console process; yields where it listens."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ternmq.cli.main", "console", "--url", url, "--port", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        await child.wait()


class RawClient:
    """HTTP/1.1 over one socket, without a library's own cost."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> RawClient:
        until = time.monotonic() + 60
        while True:
            try:
                made = cls(*await asyncio.open_connection("127.0.0.1", port))
                if (await made.ask("GET", "/api/v1/topics"))[0] == 200:
                    return made
            except OSError:
                pass
            if time.monotonic() > until:
                raise RuntimeError("the console does not answer")
            await asyncio.sleep(0.2)

    async def ask(self, verb: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        head = (
            f"{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.decode().lower().split("\r\n")
        status = int(lines[0].split()[1])
        size = next((int(x.split(":")[1]) for x in lines if x.startswith("content-length")), 0)
        return status, await self._reader.readexactly(0 if verb == "HEAD" else size)

    def close(self) -> None:
        self._writer.close()


async def batches(client: RawClient, seconds: float) -> float:
    """Messages a second, one request after the other, each answered when it is on the disk."""
    body = json.dumps({"messages": [{"text": BODY} for _ in range(ROWS)]}).encode()
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        status, answer = await client.ask("POST", "/api/v1/topics/bench/messages", body)
        if status != 200:
            raise RuntimeError(f"{status}: {answer[:300]!r}")
        sent += ROWS
    return sent / (time.monotonic() - began)


async def singles(client: RawClient, seconds: float) -> tuple[list[float], list[float]]:
    """How long one message took, and one request for nothing, in turn."""
    body = json.dumps({"messages": [{"text": BODY}]}).encode()
    took: tuple[list[float], list[float]] = ([], [])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for times, (verb, path, sent) in zip(
            took,
            (("POST", "/api/v1/topics/bench/messages", body), ("HEAD", "/api/v1/nothing", b"")),
            strict=True,
        ):
            began = time.monotonic()
            await client.ask(verb, path, sent)
            times.append(time.monotonic() - began)
    return took


async def consumed(client: RawClient, seconds: float) -> float:
    """Messages a second that are pulled by 1,000 and acked, in two requests."""
    group = "/api/v1/topics/bench/groups/bench"
    began, done = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        _, answer = await client.ask("POST", f"{group}/pull", b'{"max": 1000, "wait_ms": 100}')
        ids = [each["ack_id"] for each in json.loads(answer)["messages"]]
        if not ids:
            break
        await client.ask("POST", f"{group}/settle", json.dumps({"ack": ids}).encode())
        done += len(ids)
    return done / (time.monotonic() - began)


async def measure(url: str, port: int, options: argparse.Namespace) -> dict[str, float]:
    async with console(url, port):
        client = await RawClient.open(port)
        await batches(client, 0.5)
        rates = [await batches(client, options.seconds) for _ in range(options.rounds)]
        message, nothing = await singles(client, options.seconds)
        out = await consumed(client, options.seconds)
        client.close()
    return {
        "batch_messages_per_second": statistics.median(rates),
        "best_batch_messages_per_second": max(rates),
        "single_p50_ms": statistics.median(message) * 1e3,
        "floor_p50_ms": statistics.median(nothing) * 1e3,
        "consumed_messages_per_second": out,
    }


def main() -> None:
    from benchmarks.peers.process import free_ports
    from benchmarks.peers.ternmq import TernPeer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 1.0
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        node = TernPeer(flush="sync")
        try:
            node.start(Path(directory))
            found: dict[str, Any] = asyncio.run(measure(node.url(), free_ports(1)[0], options))
        finally:
            node.stop()
    for name, value in found.items():
        print(f"{name:34} {value:12,.2f}")
    reached = found["best_batch_messages_per_second"] >= GOAL
    print(f"goal: {GOAL:,} a second in batches of {ROWS:,}: {'reached' if reached else 'missed'}")


if __name__ == "__main__":
    main()
