"""Redis streams with an append-only file: the server, and redis-py (hiredis, uvloop) as client.

Publishing pipelines XADDs by the thousand without MULTI; groups read with XREADGROUP and ack with
XACK, many ids in one command when batched. With `appendfsync always` Redis syncs before it answers.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, ClientRecipe, Limits, Pace
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import ServerProcess, free_ports, port_answers

_PIPELINE = 1_000


class RedisClient:
    """Streams as topics; a consumer group is a group."""

    def __init__(self, port: int) -> None:
        import redis

        self._port = port
        self._redis: Any = redis.Redis(host="127.0.0.1", port=port)

    def prepare(self, topic: str, groups: list[str]) -> None:
        for group in groups:
            self._redis.xgroup_create(topic, group, id="0", mkstream=True)

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        body = b"x" * BODY_SIZE
        pipe = self._redis.pipeline(transaction=False)
        done = 0
        meter.begin()
        while meter.room(done):
            for _ in range(min(_PIPELINE, meter.count - done)):
                pipe.execute_command("XADD", topic, "*", "b", body)
            done += len(pipe.execute())
        meter.end(done)

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(self._send_each(topic, callers, meter))

    async def _send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        import redis.asyncio

        body = b"x" * BODY_SIZE
        took: list[float] = []
        clients = [redis.asyncio.Redis(host="127.0.0.1", port=self._port) for _ in range(callers)]
        for client in clients:
            await client.ping()

        async def caller(client: Any) -> None:
            while meter.room(len(took)):
                began = time.perf_counter()
                await client.execute_command("XADD", topic, "*", "b", body)
                took.append(time.perf_counter() - began)

        meter.begin()
        await asyncio.gather(*(caller(client) for client in clients))
        meter.end(len(took))
        for client in clients:
            await client.aclose()
        return took

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        done = 0
        self._redis.ping()
        meter.begin()
        while meter.room(done):
            messages = self._read(topic, group, min(_PIPELINE, meter.count - done))
            if one_by_one:
                pipe = self._redis.pipeline(transaction=False)
                for identifier, _ in messages:
                    pipe.xack(topic, group, identifier)
                pipe.execute()
            elif messages:
                self._redis.xack(topic, group, *(identifier for identifier, _ in messages))
            done += len(messages)
        meter.end(done)

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        done = 0
        waiting = list(groups)
        self._redis.ping()
        meter.begin()
        while waiting and meter.room(done):
            for group in list(waiting):
                messages = self._read(topic, group, _PIPELINE, block_ms=None)
                if not messages:
                    waiting.remove(group)
                    continue
                self._redis.xack(topic, group, *(identifier for identifier, _ in messages))
                done += len(messages)
        meter.end(done)

    def publish_paced(self, topic: str, pace: Pace) -> int:
        pipe = self._redis.pipeline(transaction=False)
        sent = 0
        for bodies in due_batches(pace.rate, pace.count, BODY_SIZE):
            if not bodies:
                time.sleep(0.0005)
                continue
            for body in bodies:
                pipe.execute_command("XADD", topic, "*", "b", body)
            sent += len(pipe.execute())
        return sent

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        ages: list[int] = []
        ready()
        meter.begin()
        while meter.room(len(ages)):
            messages = self._read(topic, group, _PIPELINE)
            ages.extend(age_ns(fields[b"b"]) for _, fields in messages)
            if messages:
                self._redis.xack(topic, group, *(identifier for identifier, _ in messages))
        meter.end(len(ages))
        return ages

    def close(self) -> None:
        self._redis.close()

    def _read(
        self, topic: str, group: str, count: int, block_ms: int | None = 200
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        answer = self._redis.xreadgroup(group, "c", {topic: ">"}, count=count, block=block_ms)
        if not answer:
            return []
        # redis-py answers with a list of pairs, or with a mapping, by protocol version.
        pages = answer.values() if isinstance(answer, dict) else [page for _, page in answer]
        messages = next(iter(pages))
        return messages[0] if messages and isinstance(messages[0], list) else messages


class RedisPeer:
    """redis-server with an append-only file, synced every second or before each answer."""

    limits = Limits(fan_out_each=4_000)

    def __init__(self, *, always: bool) -> None:
        self.name = "redis always" if always else "redis everysec"
        self.durability = (
            "AOF, appendfsync always: fsync before the answer"
            if always
            else "AOF, appendfsync everysec: no fsync before the answer"
        )
        self._policy = "always" if always else "everysec"
        self._process: ServerProcess | None = None
        self._port = 0

    def available(self) -> str | None:
        if shutil.which("redis-server") is None:
            return "redis-server is not installed"
        try:
            import redis  # noqa: F401
        except ImportError:
            return "the redis client is not installed"
        return None

    def version(self) -> str:
        import redis

        text = subprocess.run(
            ["redis-server", "--version"], capture_output=True, text=True, check=True
        ).stdout
        server = next(word[2:] for word in text.split() if word.startswith("v="))
        return f"redis-server {server}, redis-py {redis.__version__}"

    def start(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._policy,
            "daemonize": "no",
        }
        command = ["redis-server"]
        for key, value in options.items():
            command += [f"--{key}", value]
        self._process = ServerProcess(command, directory)
        self._process.wait_until(lambda: port_answers(self._port), 10)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process else []

    def client(self) -> ClientRecipe:
        return partial(RedisClient, self._port)


def variants() -> list[RedisPeer]:
    """The settings measured side by side."""
    return [RedisPeer(always=False), RedisPeer(always=True)]
