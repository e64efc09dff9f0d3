"""TernMQ itself, measured by the same workloads as its peers: `tern up`, and the asyncio client.

Publishing calls `send_many` with lists of four thousand, eight calls on their way, as the other
drivers pipeline their confirms. With flush=sync an answer means fdatasync; with flush=async it
means handed to the operating system, which is what Kafka and NATS answer by default.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, ClientRecipe, Limits, Pace
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import ServerProcess, free_ports

_LIST = 4_000
_CALLS = 8
_PREFETCH = 20_000
_WAITING_MAX = 50_000


class TernClient:
    """One connection; every call runs its own event loop to its end."""

    def __init__(self, url: str) -> None:
        self._url = url

    def _run(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        import uvloop

        import ternmq

        async def whole() -> Any:
            async with ternmq.connect(self._url, app="bench") as mq:
                return await work(mq)

        return uvloop.run(whole())

    def prepare(self, topic: str, groups: list[str]) -> None:
        from ternmq.wire.messages.groups import Start

        async def work(mq: Any) -> None:
            await mq.admin.create_topic(topic)
            for group in groups:
                await mq.admin.create_group(topic, group, Start(at="earliest"))

        self._run(work)

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        self._run(partial(_publish_each if one_by_one else _publish, topic=topic, meter=meter))

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        async def work(mq: Any) -> list[float]:
            body = b"x" * BODY_SIZE
            took: list[float] = []

            async def caller() -> None:
                while meter.room(len(took)):
                    began = time.perf_counter()
                    await mq.send(topic, body)
                    took.append(time.perf_counter() - began)

            await mq.send(topic, body)
            meter.begin()
            await asyncio.gather(*(caller() for _ in range(callers)))
            meter.end(len(took))
            return took

        return list(self._run(work))

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        async def work(mq: Any) -> None:
            done = 0
            async with mq.consumer(topic, group=group, prefetch=_PREFETCH) as consumer:
                meter.begin()
                if one_by_one:
                    async for message in consumer:
                        assert len(message.body) == BODY_SIZE
                        message.ack()
                        done += 1
                        if not done % 1_000 and not meter.room(done):
                            break
                else:
                    async for batch in consumer.batches():
                        done += len(batch.bodies)
                        batch.ack()
                        if not meter.room(done):
                            break
                await consumer.flush()
                meter.end(done)

        self._run(work)

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        each = meter.count // len(groups)

        async def drain(mq: Any, group: str, began: asyncio.Event) -> int:
            done = 0
            async with mq.consumer(topic, group=group, prefetch=_PREFETCH) as consumer:
                await began.wait()
                async for batch in consumer.batches():
                    done += len(batch.bodies)
                    batch.ack()
                    if done >= each or not meter.room(0):
                        break
                await consumer.flush()
            return done

        async def work(mq: Any) -> None:
            began = asyncio.Event()
            tasks = [asyncio.create_task(drain(mq, group, began)) for group in groups]
            await asyncio.sleep(0.2)
            meter.begin()
            began.set()
            meter.end(sum(await asyncio.gather(*tasks)))

        self._run(work)

    def publish_paced(self, topic: str, pace: Pace) -> int:
        """With the blocking client: an event loop's timers are too coarse for this pace."""
        import ternmq.sync

        sent = 0
        with ternmq.sync.connect(self._url, app="bench") as mq:
            for bodies in due_batches(pace.rate, pace.count, BODY_SIZE):
                if bodies:
                    sent += len(mq.send_many(topic, bodies))
                else:
                    time.sleep(0.0001)
        return sent

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        async def work(mq: Any) -> list[int]:
            ages: list[int] = []
            async with mq.consumer(topic, group=group, prefetch=_PREFETCH) as consumer:
                await asyncio.to_thread(ready)
                meter.begin()
                async for batch in consumer.batches():
                    ages.extend(age_ns(body) for body in batch.bodies)
                    batch.ack()
                    if not meter.room(len(ages)):
                        break
                meter.end(len(ages))
            return ages

        return list(self._run(work))

    def close(self) -> None:
        """Every call closed its own."""


async def _publish(mq: Any, *, topic: str, meter: Meter) -> None:
    bodies = [b"x" * BODY_SIZE] * _LIST
    done = 0

    async def caller() -> None:
        nonlocal done
        while meter.room(done):
            size = min(_LIST, meter.count - done)
            done += size
            await mq.send_many(topic, bodies if size == _LIST else bodies[:size])

    meter.begin()
    await asyncio.gather(*(caller() for _ in range(_CALLS)))
    meter.end(done)


async def _publish_each(mq: Any, *, topic: str, meter: Meter) -> None:
    """One call for each message, all confirmed in the end: what others call pipelined produce."""
    body = b"x" * BODY_SIZE
    done = 0
    meter.begin()
    while meter.room(done):
        for _ in range(_LIST):
            mq.send_nowait(topic, body)
        done += _LIST
        await asyncio.sleep(0)
        if mq.stats().buffered > _WAITING_MAX:
            await mq.flush()
    await mq.flush()
    assert mq.stats().failed == 0
    meter.end(done)


def _free_neighbours() -> int:
    """The first of three free ports in a row: meta, broker, delay server."""
    while True:
        [port] = free_ports(1)
        with socket.socket() as second, socket.socket() as third:
            try:
                second.bind(("127.0.0.1", port + 1))
                third.bind(("127.0.0.1", port + 2))
            except (OSError, OverflowError):
                continue
        return port


class TernPeer:
    """`tern up` with its default settings, or with flush=async."""

    limits = Limits(fan_out_each=100_000, warm_up=20_000, batch_publish=True)

    def __init__(self, *, flush: str, tls: bool = False, security: bool = False) -> None:
        """`tls` is with logins and rights, by certificate; `security` these alone, by password."""
        self.name = f"ternmq {flush}{' tls' if tls else ''}{' security' if security else ''}"
        self._tls = tls
        self._security = security
        self._url = ""
        self.durability = (
            "fdatasync before the answer (default)"
            if flush == "sync"
            else "flush=async: no fdatasync before the answer"
        )
        self._flush = flush
        self._process: ServerProcess | None = None
        self._port = 0

    def available(self) -> str | None:
        return None

    def version(self) -> str:
        from importlib.metadata import version

        return f"ternmq {version('ternmq')}"

    def start(self, directory: Path) -> None:
        self._port = _free_neighbours()
        command = [
            sys.executable,
            "-m",
            "ternmq.cli.main",
            "up",
            "--data-dir",
            str(directory / "data"),
            "--ports",
            str(self._port),
            "--flush",
            self._flush,
            "--no-console",
        ]
        self._url = f"tern://127.0.0.1:{self._port}"
        if self._tls:
            command += ["--config", str(self._secure(directory))]
        if self._security:
            config = directory / "tern.toml"
            config.write_text("security = true\n", encoding="utf-8")
            command += ["--config", str(config)]
            self._url = f"tern://admin@127.0.0.1:{self._port}"
        self._process = ServerProcess(command, directory)
        log = directory / "server.log"
        self._process.wait_until(lambda: b"ready tern" in log.read_bytes(), 60)

    def _secure(self, directory: Path) -> Path:
        """A CA and certificates for both sides, made by the command for it."""
        folder, config = directory / "secure", directory / "tern.toml"
        init = [sys.executable, "-m", "ternmq.cli.main", "secure", "init", str(folder)]
        config.write_bytes(subprocess.run(init, check=True, capture_output=True).stdout)
        files = {"ca": "ca.pem", "cert": "admin.pem", "key": "admin-key.pem"}
        query = "&".join(f"{name}={folder / file}" for name, file in files.items())
        self._url = f"terns://127.0.0.1:{self._port}?{query}"
        return config

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process else []

    def url(self) -> str:
        return self._url

    def client(self) -> ClientRecipe:
        return partial(TernClient, self.url())


def variants() -> list[TernPeer]:
    """The settings measured side by side."""
    return [TernPeer(flush="sync"), TernPeer(flush="async")]
