"""NATS JetStream with file storage: the server, and nats-py on uvloop as the client.

A topic is a stream, a group a durable push consumer (with nats-py several times faster than
pulling). The fastest confirmed publish counts acks on one reply subject; `publish_async`, which
keeps a future for each message, is the one-by-one way. A batched ack is AckPolicy.ALL.
By default JetStream answers before it syncs; `sync_interval: always` (not in Debian's old
server, so from the cache) syncs first.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import BODY_SIZE, ClientRecipe, Limits, Pace
from benchmarks.peers.meter import Meter, age_ns, due_batches
from benchmarks.peers.process import CACHE, PeerFailed, ServerProcess, free_ports, port_answers

_WINDOW = 4_000
_ACK_EVERY = 500
_MAX_ACK_PENDING = 20_000


class NatsClient:
    """One connection on an event loop of its own."""

    def __init__(self, port: int) -> None:
        import nats
        import uvloop

        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._nats: Any = self._run(nats.connect(f"nats://127.0.0.1:{port}"))
        self._js: Any = self._nats.jetstream(publish_async_max_pending=_WINDOW)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def prepare(self, topic: str, groups: list[str]) -> None:
        from nats.js.api import StorageType, StreamConfig

        config = StreamConfig(name=topic, subjects=[topic], storage=StorageType.FILE)
        self._run(self._js.add_stream(config))

    def publish(self, topic: str, one_by_one: bool, meter: Meter) -> None:
        self._run(
            self._publish_futures(topic, meter) if one_by_one else self._publish(topic, meter)
        )

    async def _publish(self, topic: str, meter: Meter) -> None:
        acks = await _Acks.subscribe(self._nats)
        body = b"x" * BODY_SIZE
        done = 0
        meter.begin()
        while meter.room(done):
            for _ in range(min(_ACK_EVERY, meter.count - done)):
                await self._nats.publish(topic, body, reply=acks.subject)
                done += 1
            await acks.wait_until(done - _WINDOW)
        await acks.wait_until(done)
        meter.end(done)
        acks.check()

    async def _publish_futures(self, topic: str, meter: Meter) -> None:
        body = b"x" * BODY_SIZE
        futures: list[Any] = []
        meter.begin()
        while meter.room(len(futures)):
            futures.append(await self._js.publish_async(topic, body))
        await self._js.publish_async_completed()
        meter.end(len(futures))
        for future in futures:
            future.result()

    def send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        took: list[float] = self._run(self._send_each(topic, callers, meter))
        return took

    async def _send_each(self, topic: str, callers: int, meter: Meter) -> list[float]:
        body = b"x" * BODY_SIZE
        took: list[float] = []

        async def caller() -> None:
            while meter.room(len(took)):
                began = time.perf_counter()
                await self._js.publish(topic, body)
                took.append(time.perf_counter() - began)

        meter.begin()
        await asyncio.gather(*(caller() for _ in range(callers)))
        meter.end(len(took))
        return took

    def consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        self._run(self._consume(topic, group, one_by_one, meter))

    async def _consume(self, topic: str, group: str, one_by_one: bool, meter: Meter) -> None:
        finished = asyncio.Event()
        done = 0
        over = False

        async def take(message: Any) -> None:
            nonlocal done
            if over:
                return
            done += 1
            if one_by_one or done % _ACK_EVERY == 0 or done == meter.count:
                await message.ack()
            if done == meter.count:
                finished.set()

        meter.begin()
        await self._subscribe(topic, f"{group}-{'each' if one_by_one else 'all'}", one_by_one, take)
        await _or_time_out(finished, meter.seconds)
        # The flush comes back behind what the server has pushed meanwhile: that counts as well.
        await self._nats.flush()
        meter.end(done)
        over = True

    def consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        self._run(self._consume_groups(topic, groups, meter))

    async def _consume_groups(self, topic: str, groups: list[str], meter: Meter) -> None:
        each = meter.count // len(groups)
        finished = asyncio.Event()
        total = 0
        over = False

        def taker() -> Callable[[Any], Awaitable[None]]:
            done = 0

            async def take(message: Any) -> None:
                nonlocal done, total
                if over:
                    return
                done += 1
                total += 1
                if done % _ACK_EVERY == 0 or done == each:
                    await message.ack()
                if total == meter.count:
                    finished.set()

            return take

        meter.begin()
        await asyncio.gather(*(self._subscribe(topic, group, False, taker()) for group in groups))
        await _or_time_out(finished, meter.seconds)
        await self._nats.flush()
        meter.end(total)
        over = True

    def publish_paced(self, topic: str, pace: Pace) -> int:
        sent: int = self._run(self._publish_paced(topic, pace))
        return sent

    async def _publish_paced(self, topic: str, pace: Pace) -> int:
        acks = await _Acks.subscribe(self._nats)
        sent = 0
        for bodies in due_batches(pace.rate, pace.count, BODY_SIZE):
            for body in bodies:
                await self._nats.publish(topic, body, reply=acks.subject)
            sent += len(bodies)
            await asyncio.sleep(0 if bodies else 0.0005)
        await acks.wait_until(sent)
        acks.check()
        return sent

    def consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        ages: list[int] = self._run(self._consume_stamped(topic, group, ready, meter))
        return ages

    async def _consume_stamped(
        self, topic: str, group: str, ready: Callable[[], None], meter: Meter
    ) -> list[int]:
        ages: list[int] = []
        finished = asyncio.Event()

        async def take(message: Any) -> None:
            ages.append(age_ns(message.data))
            if len(ages) % _ACK_EVERY == 0:
                await message.ack()
            if len(ages) == meter.count:
                finished.set()

        await self._subscribe(topic, group, False, take)
        await self._nats.flush()
        await asyncio.to_thread(ready)
        meter.begin()
        await _or_time_out(finished, meter.seconds)
        meter.end(len(ages))
        return ages

    async def _subscribe(
        self, topic: str, group: str, each: bool, take: Callable[[Any], Awaitable[None]]
    ) -> None:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(
            ack_policy=AckPolicy.EXPLICIT if each else AckPolicy.ALL,
            max_ack_pending=_MAX_ACK_PENDING,
        )
        await self._js.subscribe(
            topic,
            durable=group,
            stream=topic,
            cb=take,
            manual_ack=True,
            config=config,
            pending_msgs_limit=-1,  # what is on its way is bounded by max_ack_pending
            pending_bytes_limit=-1,
        )

    def close(self) -> None:
        self._run(self._nats.close())
        self._runner.close()


class _Acks:
    """Publish acks counted on one reply subject; a refusal is kept and raised by `check`."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._got = 0
        self._refused: list[bytes] = []
        self._more = asyncio.Event()

    @classmethod
    async def subscribe(cls, connection: Any) -> _Acks:
        acks = cls(connection.new_inbox())
        await connection.subscribe(acks.subject, cb=acks._take, pending_msgs_limit=-1)
        return acks

    async def _take(self, message: Any) -> None:
        self._got += 1
        if b'"error"' in message.data or not message.data:
            self._refused.append(message.data)
        self._more.set()

    async def wait_until(self, count: int) -> None:
        while self._got < count:
            self._more.clear()
            await self._more.wait()

    def check(self) -> None:
        if self._refused:
            raise PeerFailed(f"{len(self._refused)} refused: {self._refused[0][:200]!r}")


async def _or_time_out(finished: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(finished.wait(), seconds)
    except TimeoutError:
        return


class NatsPeer:
    """nats-server with JetStream; the one in the cache if it is there, else Debian's."""

    def __init__(self, *, fsync: bool) -> None:
        self.name = "nats fsync" if fsync else "nats"
        self.durability = (
            "JetStream file, sync_interval always: fsync before the answer"
            if fsync
            else "JetStream file: no fsync before the answer (NATS's default)"
        )
        self.limits = Limits(fan_out_each=1_000 if fsync else 5_000, batch_publish=True)
        self._fsync = fsync
        self._process: ServerProcess | None = None
        self._port = 0

    def available(self) -> str | None:
        try:
            import nats  # noqa: F401
        except ImportError:
            return "nats-py is not installed"
        if _program() is None:
            return "nats-server is not installed"
        if self._fsync and not _cached().exists():
            return "Debian's nats-server cannot sync before it answers (sync_interval: always)"
        return None

    def version(self) -> str:
        from importlib.metadata import version

        text = subprocess.run(
            [_program() or "nats-server", "--version"], capture_output=True, text=True, check=True
        ).stdout
        return f"{text.strip().replace(': v', ' ')}, nats-py {version('nats-py')}"

    def start(self, directory: Path) -> None:
        [self._port] = free_ports(1)
        config = directory / "nats.conf"
        sync = ", sync_interval: always" if self._fsync else ""
        config.write_text(
            f"host: 127.0.0.1\nport: {self._port}\n"
            f'jetstream {{ store_dir: "{directory / "store"}"{sync} }}\n'
        )
        program = _program()
        assert program is not None, "available() was asked first"
        self._process = ServerProcess([program, "-c", str(config)], directory)
        self._process.wait_until(lambda: port_answers(self._port), 15)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def pids(self) -> list[int]:
        return [self._process.pid] if self._process else []

    def client(self) -> ClientRecipe:
        return partial(NatsClient, self._port)


def _cached() -> Path:
    return CACHE / "nats" / "nats-server"


def _program() -> str | None:
    return str(_cached()) if _cached().exists() else shutil.which("nats-server")


def variants() -> list[NatsPeer]:
    """The settings measured side by side."""
    return [NatsPeer(fsync=False), NatsPeer(fsync=True)]
