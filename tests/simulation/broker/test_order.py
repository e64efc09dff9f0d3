"""Order under power cuts, lost connections, retries and lost leases: seeded, with a real client.

Whatever happens, a message of a key is shown only after every earlier one of that key was acked,
no two of a key are out at the same time, and in the end all were handled. A failure names its seed.
"""

import asyncio
import random
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq.core.errors import TernError
from ternmq.testing import SimulatedDisk, node
from tests.waiting import until

KEYS = [f"k{number}" for number in range(7)]
COUNT = 400


class World:
    """One topic, one ordered group, several lives of the broker."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.disk = SimulatedDisk(room=1_000)
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.acked: set[int] = set()
        self.problems: list[str] = []
        self.out: dict[str, int] = {}

    async def live(self, *, until_done: bool) -> None:
        running = node(data_dir=self.directory, disk=self.disk, session_grace_ms=50, lease_ms=200)
        url = await running.__aenter__()
        self.out.clear()
        mq = await ternmq.connect(url, app="sim", delivery_timeout=5)
        if not self.by_key:
            await self.produce(mq)
        tasks = [asyncio.create_task(self.consume(url)) for _ in range(3)]
        if until_done:
            await until(lambda: self.is_done(mq), seconds=60)
        else:
            await asyncio.wait(tasks, timeout=self.chance.random() * 0.3)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.disk.crash(self.chance.randrange(2**32))
        with suppress(TernError, ExceptionGroup):
            await running.__aexit__(None, None, None)
        with suppress(TernError):
            await mq.close()

    async def produce(self, mq: Any) -> None:
        rows = []
        for number in range(COUNT):
            key = self.chance.choice(KEYS)
            rows.append(ternmq.Outgoing(body=b"%d" % number, order_key=key))
        receipt = await mq.send_many("orders", rows)
        for row, outgoing in enumerate(rows):
            self.by_key[str(outgoing.order_key)].append(receipt[row].sequence)

    async def is_done(self, mq: Any) -> bool:
        [line] = await mq.admin.ledger(group="g")
        assert line.total == COUNT
        return not line.ready + line.in_flight + line.waiting_retry

    async def consume(self, url: str) -> None:
        """A consumer that now and then fails, sleeps over its lease, or loses its connection."""
        while True:
            async with ternmq.connect(url, app="sim") as mq:
                joining = mq.consumer("orders", group="g", ordered=True, prefetch=5)
                async with joining as consumer:
                    async for message in consumer:
                        if not await self.handle(consumer, message):
                            break

    async def handle(self, consumer: Any, message: Any) -> bool:
        key, sequence = message.order_key, message.sequence
        chain = self.by_key[key]
        missing = [s for s in chain if s < sequence and s not in self.acked]
        if missing:
            self.problems.append(f"{key}: {sequence} shown before {missing[0]} was acked")
        await asyncio.sleep(self.chance.random() * 0.002)
        what = self.chance.random()
        if what < 0.05:
            message.retry(after=self.chance.random() * 0.02)
        elif what < 0.07:
            connection = next(iter(consumer._subscriptions))._connection
            if connection is not None:
                connection.abort()
            if self.chance.random() < 0.5:
                return False  # Leaving gives it back.
            message.retry(after=0)
        else:
            self.acked.add(sequence)
            message.ack()
        return True


@pytest.mark.parametrize("seed", range(6))
async def test_a_key_keeps_its_order_through_crashes_and_lost_consumers(
    seed: int, tmp_path: Path
) -> None:
    """R6, J16: strictly ordered, also across consumer crashes and broker restarts."""
    world = World(seed, tmp_path)
    for _ in range(2):
        await world.live(until_done=False)
    await world.live(until_done=True)

    assert not world.problems, world.problems[:5]
    assert len(world.acked) == COUNT
