"""A retry storm: one group fails everything it holds, all at once. What do the others notice?

A consumer takes `rows` messages and fails them, each with a delay of its own, so that no two rows
wait together: the worst case for the broker's memory. It goes on consuming: new messages of its
topic come in between, and the failed ones again. Meanwhile another producer and another group work
on another topic. What they get is compared with the seconds before the storm, in the same run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.own import Fields, _run, in_process

BODY = b"x" * 100
STORM_ROWS = 1_000_000
CALM_S = 5.0
FAILED_PER_S = 10_000  # All are failed before the first come again: a slow machine manages this.
SPREAD = 50  # So many moments, 20 ms apart: neighbours never wait together.
FRESH_EACH_S = 0.01
AGAIN_MAX_S = 600.0

_spawn = multiprocessing.get_context("spawn")


def resident_mb(pid: int) -> float:
    """What the broker has in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def fill_load(url: str, topic: str, rows: int) -> None:
    async def work(mq: Any) -> None:
        await mq.admin.create_topic(topic)
        for _ in range(rows // 1_000):
            await mq.send_many(topic, [BODY] * 1_000)

    _run(url, work)


def storm_load(url: str, rows: int, gate: Any, out: Any) -> None:
    """Take everything, and fail it when the gate opens."""

    async def work(mq: Any) -> None:
        consumers, holding = [], []
        for _ in range(4):  # One holds at most half of its prefetch for sure.
            consumers.append(mq.consumer("storm", group="stormy", prefetch=rows // 2))
            await consumers[-1].start()
            holding.append(await _take(consumers[-1], rows // 4))
            consumers[-1].stop_pulling()
        out.put("holding")
        await asyncio.to_thread(gate.wait)
        for held in holding:
            for number, message in enumerate(held):
                message.retry(after=20 + rows / FAILED_PER_S + number % SPREAD * 0.02)
                if number % 1_000 == 0:
                    await asyncio.sleep(0)
        holding.clear()
        await asyncio.gather(*(consumer.flush() for consumer in consumers))
        out.put("failed")
        await asyncio.gather(*(consumer.close() for consumer in consumers))

    _run(url, work)


def group_load(url: str, rows: int, stop: Any, out: Any) -> None:
    """The same group: new messages are sent steadily, and whatever comes is handled."""

    async def work(mq: Any) -> Fields:
        sent: dict[int, float] = {}
        late: list[float] = []
        again = 0
        began_again = 0.0

        async def send() -> None:
            for number in count(1):
                sent[number] = time.monotonic()
                await mq.send("storm", b"new %d" % number)
                await asyncio.sleep(FRESH_EACH_S)

        async with mq.consumer("storm", group="stormy") as consumer:
            sending = asyncio.create_task(send())
            async for message in consumer:
                if message.body[:4] == b"new ":
                    late.append(time.monotonic() - sent.pop(int(message.body[4:])))
                else:
                    again += 1
                    began_again = began_again or time.monotonic()
                message.ack()
                if again == rows:
                    break
            sending.cancel()
        late.sort()
        return {
            "new": len(late),
            "new_p50_ms": _share(late, 0.5) * 1e3,
            "new_p99_ms": _share(late, 0.99) * 1e3,
            "new_max_ms": _share(late, 1.0) * 1e3,
            "again_per_s": again / (time.monotonic() - began_again),
        }

    out.put(_run(url, work))


async def _take(consumer: Any, rows: int) -> list[Any]:
    held: list[Any] = []
    async for message in consumer:
        held.append(message)
        if len(held) == rows:
            break
    return held


def calm_load(url: str, stop: Any, out: Any) -> None:
    """Another topic and group: single sends one after the other, and their consumption."""

    async def work(mq: Any) -> list[tuple[float, float, float]]:
        """When, how long the send took, how long until it was handled."""
        taken: list[tuple[float, float, float]] = []
        sent: dict[int, tuple[float, float]] = {}

        async def consume(consumer: Any) -> None:
            async for message in consumer:
                began, took = sent.pop(int(message.body), (0.0, 0.0))
                taken.append((began, took, time.monotonic() - began))
                message.ack()

        async with mq.consumer("calm", group="other") as consumer:
            consuming = asyncio.create_task(consume(consumer))
            number = 0
            while not stop.is_set():
                began = time.monotonic()
                sent[number] = (began, 0.0)
                await mq.send("calm", b"%d" % number)
                if number in sent:
                    sent[number] = (began, time.monotonic() - began)
                else:
                    taken[-1] = (began, time.monotonic() - began, taken[-1][2])
                number += 1
            while sent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            consuming.cancel()
        return taken

    out.put(_run(url, work))


def _share(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def _part(taken: list[tuple[float, float, float]], first: float, end: float) -> Fields:
    within = [each for each in taken if first <= each[0] < end]
    sends, whole = sorted(each[1] for each in within), sorted(each[2] for each in within)
    return {
        "rate": len(within) / max(end - first, 1e-9),
        "send_p50_ms": _share(sends, 0.5) * 1e3,
        "send_p99_ms": _share(sends, 0.99) * 1e3,
        "send_max_ms": _share(sends, 1.0) * 1e3,
        "handled_p50_ms": _share(whole, 0.5) * 1e3,
        "handled_p99_ms": _share(whole, 0.99) * 1e3,
    }


def storm(url: str, pid: int, rows: int = STORM_ROWS) -> Fields:
    """The whole story; see the module."""
    in_process(fill_load, url, "storm", rows, deadline=300.0)
    gate, stop = _spawn.Event(), _spawn.Event()
    stormy, calm, group = _spawn.Queue(), _spawn.Queue(), _spawn.Queue()
    workers = [
        _spawn.Process(target=storm_load, args=(url, rows, gate, stormy)),
        _spawn.Process(target=calm_load, args=(url, stop, calm)),
        _spawn.Process(target=group_load, args=(url, rows, stop, group)),
    ]
    workers[0].start()
    assert stormy.get(timeout=300) == "holding"
    for worker in workers[1:]:
        worker.start()
    time.sleep(3.0)
    before, memory = time.monotonic(), {"before": resident_mb(pid)}
    time.sleep(CALM_S)
    began = time.monotonic()
    gate.set()
    assert stormy.get(timeout=AGAIN_MAX_S) == "failed"
    failed = time.monotonic()
    memory["waiting"] = resident_mb(pid)
    found = group.get(timeout=AGAIN_MAX_S)
    ended = time.monotonic()
    memory["after"] = resident_mb(pid)
    stop.set()
    taken = calm.get(timeout=60)
    for worker in workers:
        worker.join(60)
    quiet, during = _part(taken, before, began), _part(taken, began, ended)
    return {
        "rows": rows,
        "stormy": found,
        "memory_mb": memory,
        "failed_s": failed - began,
        "all_s": ended - began,
        "other before": quiet,
        "other during": during,
        "other while failing": _part(taken, began, failed),
        "storm, broker bytes per waiting row": (memory["waiting"] - memory["before"])
        * 2**20
        / rows,
        "storm, other group's rate beside before": during["rate"] / quiet["rate"],
        "storm, other group's send p99 ms": during["send_p99_ms"],
        "storm, new messages of the group, p99 ms": found["new_p99_ms"],
    }
