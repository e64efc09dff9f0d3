"""A disk that answers reads with an error and then works again: nothing counts as lost (R14)."""

import asyncio
from pathlib import Path

import ternmq
from ternmq.testing import SimulatedDisk, node
from ternmq.testing.disk import Faults

BODIES = [b"%d" % number for number in range(50)]


class FailingReads(Faults):
    """The first reads that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def next_read(self) -> bool:
        self.left -= 1
        return self.left >= 0


async def test_messages_that_could_not_be_read_for_a_moment_come_when_their_lease_is_over(
    tmp_path: Path,
) -> None:
    """Found by the read errors of the cluster simulation: they counted as expired."""
    disk, faults = SimulatedDisk(), FailingReads()
    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url) as mq:
        await mq.send_many("orders", BODIES)
    disk.faults, disk.cached = faults, False
    running = node(data_dir=tmp_path, disk=disk, lease_ms=300)
    async with running as url, ternmq.connect(url) as mq, asyncio.timeout(60):
        got: set[bytes] = set()
        faults.left = 2
        async with mq.consumer("orders", group="billing", start="earliest") as consumer:
            async for message in consumer:
                got.add(message.body)
                message.ack()
                if len(got) == len(BODIES):
                    break
            await consumer.flush()
        assert faults.left < 0, "no read failed"
        (line,) = await mq.admin.ledger("orders", "billing")
        assert (line.acked, line.expired) == (len(BODIES), 0)
