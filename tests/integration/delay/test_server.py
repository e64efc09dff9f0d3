"""A delay server in process: what it refuses, a full disk, a disk that fails (Q7, Q8)."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import ternmq
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import BadRequest, DiskFull, TernError, TooLarge
from ternmq.core.ids import ProducerId
from ternmq.rpc.connection import Connection
from ternmq.testing import SimulatedDisk, TurnedClock, node
from ternmq.testing.disk import SimulatedFile
from ternmq.wire.messages.publish import PUBLISHED, PUBLISHED_DUPLICATE
from ternmq.wire.messages.topics import TopicSettings
from ternmq.wire.numbers import Command
from tests.waiting import until


class NoNewHours(SimulatedDisk):
    """A disk on which there is no room for another schedule log while `full`."""

    full = False

    def __init__(self) -> None:
        super().__init__()
        self.scheduled = asyncio.Event()
        """There is a schedule log."""
        self._loop = asyncio.get_running_loop()

    def open(self, path: Path, *, create: bool) -> SimulatedFile:
        if self.full and create and path.parent.name == "schedule" and not self.exists(path):
            raise DiskFull("no space left on device (simulated)")
        if create and path.parent.name == "schedule":
            self._loop.call_soon_threadsafe(self.scheduled.set)
        return super().open(path, create=create)


@asynccontextmanager
async def delay_connection(url: str) -> AsyncIterator[Connection]:
    """A connection to the delay server, as the client has one."""
    links = Cluster(url, app="test", timeout=5.0)
    try:
        yield await links.server("main", "delay").get()
    finally:
        await links.close()


async def a_body(mq: ternmq.Client, topic: str, group: str = "g") -> bytes:
    async with asyncio.timeout(30), mq.consumer(topic, group=group) as consumer:
        message = await anext(consumer)
        await message.ack()
        return bytes(message.body)


async def sent(mq: ternmq.Client) -> bool:
    await mq.send("t", b"z", delay=3600)
    return True


async def test_what_is_stored_goes_out_while_nothing_can_be_scheduled() -> None:
    """Issue 4, full disk: an hour that is on disk is loaded in time; the rest waits for room."""
    clock, disk = TurnedClock(), NoNewHours()
    async with node(clock=clock, disk=disk) as url, ternmq.connect(url) as mq:
        await mq.send("t", b"stored", delay=timedelta(hours=5))
        assert len(await mq.admin.delays.rows(topic="t")) == 1
        await asyncio.wait_for(disk.scheduled.wait(), 30)
        disk.full = True
        await mq.send("t", b"waits for room", delay=timedelta(hours=9))  # Safe in the message log.
        clock.turn(5 * 3600 + 1)
        assert await a_body(mq, "t") == b"stored"
        disk.full = False
        clock.turn(4 * 3600)
        assert await a_body(mq, "t") == b"waits for room"

        async def told() -> bool:
            """A consumer may have it before the delay server heard that the broker does."""
            [line] = await mq.admin.delays.ledger("t")
            return line.pending == 0

        await until(told)
        [line] = await mq.admin.delays.ledger("t")
        assert (line.accepted, line.pending, line.dispatched) == (2, 0, 2)


async def test_a_full_disk_refuses_new_messages_and_says_so() -> None:
    disk = SimulatedDisk()
    async with node(disk=disk) as url, ternmq.connect(url, delivery_timeout=0.5) as mq:
        await mq.send("t", b"x", delay=3600)
        disk.free_size = 0
        with pytest.raises(DiskFull, match="full disk"):
            await mq.send("t", b"y", delay=3600)
        [status] = await mq.admin.delays.status()
        assert status.state.startswith("disk almost full")
        disk.free_size = 2**39
        await until(lambda: sent(mq), seconds=30, ignoring=DiskFull)  # Looked at every second.
        [line] = await mq.admin.delays.ledger("t")
        assert line.accepted == line.pending == 2


async def test_a_failed_fsync_ends_acknowledgements_until_a_restart(tmp_path: Path) -> None:
    """Never tried again; what was acknowledged before is there after a restart, once."""
    disk = SimulatedDisk()
    running = node(data_dir=tmp_path, disk=disk)
    async with running as url, ternmq.connect(url, delivery_timeout=1) as mq:
        await mq.send("t", b"safe", delay=3600)
        disk.faults.fail_sync(1)
        with pytest.raises(TernError):
            await mq.send("t", b"lost", delay=3600)
        with pytest.raises(TernError):
            await mq.send("t", b"lost too", delay=3600)
    disk.crash(1)
    async with node(data_dir=tmp_path, disk=disk) as url, ternmq.connect(url) as mq:
        rows = await mq.admin.delays.rows(topic="t")
        assert len(rows) in (1, 2), "an unanswered one may have reached the disk"
        await mq.send("t", b"again", delay=3600)


async def test_a_delay_server_refuses_what_is_a_brokers() -> None:
    origin = Origin(topic="t", app="test", producer=ProducerId(1, 2))
    async with node() as url, ternmq.connect(url) as mq:
        await mq.send("t", b"x", delay=3600)
        async with delay_connection(url) as connection:
            now = encode_messages([Outgoing(body=b"now")], origin=origin, first_sequence=0)
            with pytest.raises(BadRequest, match="no due time"):
                await connection.call(Command.PUBLISH, now)
            with pytest.raises(BadRequest, match="ask a broker"):
                await connection.call(Command.READ, b"")
            far = Outgoing(body=b"far", due_at_ms=2**42)
            with pytest.raises(BadRequest, match="days ahead"):
                await connection.call(
                    Command.PUBLISH, encode_messages([far], origin=origin, first_sequence=1)
                )


async def test_a_repeat_is_answered_whatever_the_topic_takes_by_now() -> None:
    """What is stored stays stored: a refusal would tell the producer that it is not."""
    origin = Origin(topic="t", app="test", producer=ProducerId(1, 2))
    later = [Outgoing(body=b"x" * 100, due_at_ms=int(time.time() * 1000) + 3_600_000)]
    batch, other = (encode_messages(later, origin=origin, first_sequence=at) for at in (0, 1))
    async with node() as url, ternmq.connect(url) as mq, delay_connection(url) as connection:
        first = PUBLISHED.unpack(await connection.call(Command.PUBLISH, bytes(batch)))
        await mq.admin.set_topic("t", body_size_max=10, closed=True)
        again = PUBLISHED.unpack(await connection.call(Command.PUBLISH, bytes(batch)))
        with pytest.raises(TernError):
            await connection.call(Command.PUBLISH, bytes(other))

        assert again == (*first[:-1], first[-1] | PUBLISHED_DUPLICATE)
        [line] = await mq.admin.delays.ledger("t")
        assert line.accepted == 1


async def test_what_the_broker_would_refuse_is_refused_at_the_door() -> None:
    """A body over the topic's limit does not wait two years to be refused."""
    async with node() as url, ternmq.connect(url) as mq:
        await mq.admin.create_topic("small", TopicSettings(body_size_max=1_000))
        with pytest.raises(TooLarge, match="small"):
            await mq.send("small", b"x" * 2_000, delay=60)
        await mq.send("small", b"x" * 1_000, delay=60)
        [line] = await mq.admin.delays.ledger("small")
        assert (line.accepted, line.pending) == (1, 1)


async def test_a_setting_changed_since_keeps_nobody_waiting() -> None:
    """One message that is too large by now must not hold up its topic: it was accepted."""
    clock = TurnedClock()
    async with node(clock=clock) as url, ternmq.connect(url) as mq:
        await mq.send_many("t", [b"small", bytes(1_000), b"small too"], delay=60)
        await mq.admin.set_topic("t", body_size_max=10)
        clock.turn(61)
        async with asyncio.timeout(20), mq.consumer("t", group="g") as consumer:
            sizes = [len((await anext(consumer)).body) for _ in range(3)]

    assert sizes == [5, 1_000, 9]
