"""`tern bench`: a simple load against a running node, and what it cost on both sides.

The numbers are what this machine and this node did together; `make bench` has the ones that are
compared. Uses a topic of its own, which is deleted afterwards.
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, show_json, show_table
from ternmq.cli.terminal.progress import progress

if TYPE_CHECKING:
    from ternmq.client.client import Client

MILLION = 1_000_000
GROUP = "bench"
STAMP = struct.Struct("<d")  # When a message of the latency run was sent.


class Mode(StrEnum):
    """What is measured."""

    PUBLISH = "publish"
    """Batches by send_many."""
    SEND = "send"
    """One message per call, many callers at the same time."""
    CONSUME = "consume"
    """Batches with acks, after publishing them (not measured)."""
    LATENCY = "latency"
    """From send to the consumer, at a steady rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much of what."""

    topic: str
    size: int
    count: int
    batch: int
    producers: int
    rate: int


@dataclass(slots=True, kw_only=True)
class Measured:
    """What happened while the block of `_measuring` ran."""

    count: int = 0
    seconds: float = 0.0
    client_cpu_s: float = 0.0
    broker_cpu_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One line of the report; CPU is seconds per million messages."""

    mode: str
    messages: int
    size: int
    seconds: float
    rate: int
    mib_per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    client_cpu_per_million: float
    broker_cpu_per_million: float


def bench(
    mode: Annotated[Mode, typer.Argument(help="What to measure.")] = Mode.PUBLISH,
    size: Annotated[int, typer.Option(min=8, help="Bytes in a body.")] = 100,
    count: Annotated[int, typer.Option(min=1, help="How many messages.")] = 200_000,
    batch: Annotated[int, typer.Option(min=1, help="Messages per send_many.")] = 1_000,
    producers: Annotated[int, typer.Option(min=1, help="Callers at the same time.")] = 4,
    rate: Annotated[int, typer.Option(min=1, help="Messages per second, for latency.")] = 1_000,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Put load on a node and show rate, waiting times and CPU on both sides."""
    topic = f"tern-bench-{time.time_ns():x}"
    load = Load(topic=topic, size=size, count=count, batch=batch, producers=producers, rate=rate)

    async def job(mq: "Client") -> Measured:
        measured = Measured()
        await mq.admin.create_topic(topic)
        try:
            async with progress(mode.value, count, lambda: measured.count):
                await _RUNS[mode](mq, load, measured)
        finally:
            await mq.admin.delete_topic(topic)
        return measured

    note(f"{mode.value}: {count} messages of {size} bytes, {producers} at the same time")
    result = summarise(mode, load, use(url, job))
    if as_json:
        show_json(asdict(result))
        return
    waits = ["#p50 ms", "#p99 ms", "#p99.9 ms"]
    cpu = ["#client CPU s/M", "#broker CPU s/M"]
    show_table(
        ["mode", "#messages", "#seconds", "#msg/s", "#MiB/s", *waits, *cpu],
        [
            (
                result.mode,
                result.messages,
                f"{result.seconds:.2f}",
                result.rate,
                f"{result.mib_per_s:.1f}",
                f"{result.p50_ms:.2f}",
                f"{result.p99_ms:.2f}",
                f"{result.p999_ms:.2f}",
                f"{result.client_cpu_per_million:.2f}",
                f"{result.broker_cpu_per_million:.2f}",
            )
        ],
    )


def summarise(mode: Mode, load: Load, measured: Measured) -> Result:
    seconds = max(measured.seconds, 1e-9)
    millions = max(measured.count, 1) / MILLION
    waits = sorted(measured.waits_ms)
    return Result(
        mode=mode.value,
        messages=measured.count,
        size=load.size,
        seconds=round(seconds, 4),
        rate=round(measured.count / seconds),
        mib_per_s=round(measured.count * load.size / seconds / 2**20, 2),
        p50_ms=round(percentile(waits, 0.5), 3),
        p99_ms=round(percentile(waits, 0.99), 3),
        p999_ms=round(percentile(waits, 0.999), 3),
        client_cpu_per_million=round(measured.client_cpu_s / millions, 3),
        broker_cpu_per_million=round(measured.broker_cpu_s / millions, 3),
    )


def percentile(ordered: list[float], part: float) -> float:
    """The value that `part` of all do not exceed; 0 when there are none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


async def _publish(mq: "Client", load: Load, measured: Measured) -> None:
    async with _measuring(mq, measured):
        await _send_batches(mq, load, measured)


async def _send_batches(mq: "Client", load: Load, measured: Measured) -> None:
    body = bytes(load.size)
    left = load.count

    async def produce() -> None:
        nonlocal left
        while left > 0:
            rows = min(load.batch, left)
            left -= rows
            started = time.perf_counter()
            receipts = await mq.send_many(load.topic, [body] * rows)
            for _, error in receipts.failures:
                raise error
            measured.waits_ms.append((time.perf_counter() - started) * 1000)
            measured.count += rows

    await asyncio.gather(*[produce() for _ in range(load.producers)])


async def _send(mq: "Client", load: Load, measured: Measured) -> None:
    body = bytes(load.size)
    left = load.count

    async with _measuring(mq, measured):

        async def produce() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                started = time.perf_counter()
                await mq.send(load.topic, body)
                measured.waits_ms.append((time.perf_counter() - started) * 1000)
                measured.count += 1

        await asyncio.gather(*[produce() for _ in range(load.producers)])


async def _consume(mq: "Client", load: Load, measured: Measured) -> None:
    await _send_batches(mq, load, Measured())
    async with (
        _measuring(mq, measured),
        mq.consumer(load.topic, group=GROUP, start="earliest", prefetch=10_000) as consumer,
    ):
        started = time.perf_counter()
        async for batch in consumer.batches():
            measured.count += len(batch)
            batch.ack()
            measured.waits_ms.append((time.perf_counter() - started) * 1000)
            if measured.count >= load.count:
                break
            started = time.perf_counter()
        await consumer.flush()


async def _latency(mq: "Client", load: Load, measured: Measured) -> None:
    padding = bytes(load.size - STAMP.size)
    async with (
        mq.consumer(load.topic, group=GROUP, start="earliest") as consumer,
        _measuring(mq, measured),
    ):

        async def receive() -> None:
            async for message in consumer:
                (sent,) = STAMP.unpack_from(message.body)
                measured.waits_ms.append((time.perf_counter() - sent) * 1000)
                measured.count += 1
                message.ack()
                if measured.count == load.count:
                    return

        async with asyncio.TaskGroup() as group:
            group.create_task(receive(), name="receive")
            started = time.perf_counter()
            for number in range(load.count):
                wait = started + number / load.rate - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                group.create_task(_send_stamped(mq, load.topic, padding))


async def _send_stamped(mq: "Client", topic: str, padding: bytes) -> None:
    await mq.send(topic, STAMP.pack(time.perf_counter()) + padding)


@asynccontextmanager
async def _measuring(mq: "Client", measured: Measured) -> AsyncIterator[None]:
    broker_before = await _broker_cpu_s(mq)
    client_before, started = time.process_time(), time.perf_counter()
    yield
    measured.seconds = time.perf_counter() - started
    measured.client_cpu_s = time.process_time() - client_before
    measured.broker_cpu_s = await _broker_cpu_s(mq) - broker_before


async def _broker_cpu_s(mq: "Client") -> float:
    return sum(status.cpu_s for status in await mq.admin.broker_status())


_RUNS = {
    Mode.PUBLISH: _publish,
    Mode.SEND: _send,
    Mode.CONSUME: _consume,
    Mode.LATENCY: _latency,
}
