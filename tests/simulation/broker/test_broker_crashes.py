"""Power cuts under a whole broker: real client, real sockets, a disk that loses what is not synced.

Each seed runs several lives. In a life, producers send and consumers ack, retry and reject at
random; then the power goes, at a random moment, with writes torn and unsynced names lost. After
the last cut everything is drained and compared with what was acknowledged. A failure names its
seed.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import TernError
from ternmq.testing import SimulatedDisk, node
from tests.waiting import until

TOPICS = ("orders", "bookings")
GROUP = "billing"
LIVES = 3
DRAINED_WITHIN_S = 100.0


class World:
    """What was acknowledged to somebody, over all lives."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.disk = SimulatedDisk(room=1_000)
        self.stored: dict[tuple[str, int], bytes] = {}
        self.sent: set[bytes] = set()
        self.acked: set[tuple[str, int]] = set()
        self.rejecting: set[bytes] = set()
        self.rejected: set[bytes] = set()  # Those whose answer came.
        self.number = 0

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Any]:
        """A node and a client; the power goes at the end, nothing is closed in an orderly way."""
        settings: dict[str, Any] = {"segment_size": 8 * 1024 * 1024, "checkpoint_interval_ms": 100}
        running = node(data_dir=self.directory, disk=self.disk, session_grace_ms=0, **settings)
        url = await running.__aenter__()
        mq = await ternmq.connect(url, app="sim", delivery_timeout=5)
        try:
            yield mq
        finally:
            self.disk.crash(self.chance.randrange(2**32))
            with suppress(TernError, ExceptionGroup):
                await running.__aexit__(None, None, None)
            with suppress(TernError):
                await mq.close()

    async def produce(self, mq: Any) -> None:
        while True:
            topic = self.chance.choice(TOPICS)
            bodies = []
            for _ in range(self.chance.randrange(1, 20)):
                self.number += 1
                bodies.append(b"%d " % self.number + b"x" * self.chance.randrange(300))
            self.sent.update(bodies)
            receipt = await mq.send_many(topic, bodies)
            for row, body in enumerate(bodies):
                self.stored[topic, receipt[row].sequence] = body

    async def consume(self, mq: Any) -> None:
        async with mq.consumer(list(TOPICS), group=GROUP, prefetch=50) as consumer:
            async for message in consumer:
                what = self.chance.random()
                place = (message.topic, message.sequence)
                if what < 0.05:
                    self.rejecting.add(message.body)
                    await message.reject("no")
                    self.rejected.add(message.body)
                elif what < 0.1:
                    message.retry(after=0.01)
                elif what < 0.9:
                    self.acked.add(place)
                    message.ack()

    async def live(self) -> None:
        async with self.life() as mq:
            tasks = [asyncio.create_task(self.produce(mq)) for _ in range(2)]
            tasks += [asyncio.create_task(self.consume(mq)) for _ in range(2)]
            await asyncio.wait(tasks, timeout=self.chance.random() * 0.15)
            await self.balanced(mq)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def balanced(self, mq: Any) -> None:
        for line in await mq.admin.ledger():
            parts = (
                line.ready,
                line.in_flight,
                line.waiting_retry,
                line.acked,
                line.filtered,
                line.skipped,
                line.dead,
                line.expired,
            )
            assert line.total == sum(parts), line

    async def judge(self) -> None:
        """Everything acknowledged is there, and everything un-acked is handed out."""
        async with self.life() as mq:
            await self.balanced(mq)
            found = await self.read_all(mq)
            for place, body in self.stored.items():
                assert found.get(place) == body, f"acknowledged message {place} is not there"
            for place, body in found.items():
                assert body in self.sent, f"nobody sent what is at {place}"
            delivered = await self.drain(mq)
            missing = set(found) - delivered - self.acked - self.buried(found)
            assert not missing, f"never handed out and never acked: {sorted(missing)[:5]}"
            dead = [m.body async for m in mq.read(f"%dead.{GROUP}")] if self.rejected else []
            assert self.rejected <= set(dead)

    def buried(self, found: dict[tuple[str, int], bytes]) -> set[tuple[str, int]]:
        return {place for place, body in found.items() if body in self.rejecting}

    async def read_all(self, mq: Any) -> dict[tuple[str, int], bytes]:
        existing = {topic.name for topic in await mq.admin.topics()}
        return {
            (topic, message.sequence): message.body
            for topic in TOPICS
            if topic in existing
            async for message in mq.read(topic)
        }

    async def drain(self, mq: Any) -> set[tuple[str, int]]:
        """Until nothing is left by the ledger: a row may also be settled without being handed out
        again, so nobody counts what is to come. A busy machine takes its time."""
        delivered: set[tuple[str, int]] = set()
        async with mq.consumer(list(TOPICS), group=GROUP) as consumer:
            taking = asyncio.create_task(self.take(consumer, delivered))
            await until(lambda: self.is_settled(mq), "everything settled", seconds=DRAINED_WITHIN_S)
            taking.cancel()
            await asyncio.wait([taking])
            await self.balanced(mq)
        return delivered

    async def take(self, consumer: Any, delivered: set[tuple[str, int]]) -> None:
        async for message in consumer:
            delivered.add((message.topic, message.sequence))
            message.ack()

    async def is_settled(self, mq: Any) -> bool:
        lines = await mq.admin.ledger(group=GROUP)
        return not sum(line.ready + line.in_flight + line.waiting_retry for line in lines)


@pytest.mark.parametrize("seed", range(12))
async def test_what_was_acknowledged_survives_every_power_cut(seed: int, tmp_path: Path) -> None:
    """D8, R14: stored, then acknowledged; and the ledger of design 6 balances in every life."""
    world = World(seed, tmp_path)
    for _ in range(LIVES):
        await world.live()
    await world.judge()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_200))
async def test_what_was_acknowledged_survives_many_power_cuts(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    for _ in range(2 * LIVES):
        await world.live()
    await world.judge()
