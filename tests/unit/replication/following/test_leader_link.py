"""What a replica tells its master when it comes: a real message log on a simulated disk, and a
master that only listens."""

import asyncio
from typing import Any

import pytest

from ternmq.core.errors import DiskFailed, TernError, Unavailable
from ternmq.replication.following import leader_link as module
from ternmq.replication.following.leader_link import LeaderLink
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.rpc.connection import Connection
from ternmq.storage.config import StorageConfig
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk
from ternmq.wire.messages.replication import (
    MESSAGES,
    REPLICATE,
    REPLICATE_SYNC,
    REPLICATED,
    Follow,
    Followed,
)
from tests.unit.storage.builders import Maker, open_store
from tests.waiting import until

EPOCH = 1


class Master:
    """Takes part in every call of a follower; one of it is one connection."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.asked = 0
        self.on_lost: Any = None

    def listen(self, *, pushed: Any = None, lost: Any = None) -> None:
        self.on_lost = lost or self.on_lost

    def send(self, command: int, payload: bytes) -> None:
        self.answers.append(REPLICATED.unpack(payload)[1])

    def abort(self) -> None:
        """Nothing is open."""


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    listening = Master()

    async def connect(*args: Any, **options: Any) -> Master:
        return listening

    async def answer(*args: Any, **options: Any) -> Followed:
        listening.asked += 1
        return Followed(epoch=EPOCH, logs=[])

    monkeypatch.setattr(Connection, "open", connect)
    monkeypatch.setattr(module, "request", answer)
    return listening


async def keeps_all(followed: Followed) -> None:
    """Nothing has to be cut."""


def some_bytes() -> bytes:
    """A log that a master might have."""
    store = open_store(SimulatedDisk(), StorageConfig(min_free=0), epoch=EPOCH)
    staged = store.messages.stage([Maker().append(1, rows=2)])
    store.messages.write(staged)
    return store.messages.read_raw(0, 1 << 20)


def a_replica(disk: SimulatedDisk) -> tuple[Store, ReplicaWriter]:
    store = open_store(disk, StorageConfig(min_free=0), epoch=0, suffix=True)
    logs: dict[int, Any] = {MESSAGES: store.messages}
    return store, ReplicaWriter(logs, on_safe=lambda number, found: None)


async def take(writer: ReplicaWriter, data: bytes, flags: int) -> None:
    """It came over a connection that is lost by now."""
    writer.restart(lambda number, end: None)
    head = REPLICATE.pack(EPOCH, 0, 0, 0, MESSAGES, flags)
    writer.take(bytearray(head) + data, EPOCH)
    await writer.alone(lambda: None)


async def come(writer: ReplicaWriter, master: Master) -> TernError:
    """Follow until the master has heard of the log, or the replica gives up; how that ends."""
    asked = Follow(broker_group="main", member="11" * 8, epoch=EPOCH, logs=[])
    hello: Any = None
    follower = LeaderLink(writer, hello, prepare=keeps_all)
    following = asyncio.ensure_future(follower.run("there:1", lambda: asked))
    await until(lambda: master.answers or following.done())
    async with asyncio.timeout(10):
        if master.on_lost is not None and not following.done():
            master.on_lost(Unavailable("gone"))
        with pytest.raises(TernError) as ended:
            await following
    await writer.close()
    return ended.value


async def test_a_replica_that_comes_again_tells_only_what_is_on_its_disk(master: Master) -> None:
    disk, data = SimulatedDisk(), some_bytes()
    store, writer = a_replica(disk)
    await take(writer, data, 0)
    assert store.messages.synced_offset == 0, "written only"

    await come(writer, master)

    assert master.answers == [len(data)]
    assert store.messages.synced_offset == len(data)


async def test_a_replica_whose_sync_failed_follows_nobody_until_a_restart(master: Master) -> None:
    """What the sync left out can be read all the same, until the power is cut."""
    disk, data = SimulatedDisk(), some_bytes()
    store, writer = a_replica(disk)
    disk.faults.fail_sync(1)
    await take(writer, data, REPLICATE_SYNC)
    assert (store.messages.synced_offset, store.messages.end) == (0, len(data))

    ended = await come(writer, master)

    assert isinstance(ended, DiskFailed)
    assert (master.asked, master.answers) == (0, [])
    disk.crash(1)
    store, writer = a_replica(disk)
    assert store.messages.end == 0
    await take(writer, data, REPLICATE_SYNC)
    await come(writer, master)
    assert master.answers == [len(data)]
    assert store.messages.synced_offset == len(data)


async def test_a_replica_started_again_after_a_failed_sync_answers_for_what_survives(
    master: Master,
) -> None:
    """Killed, it still sees what the sync left out: the start writes it once more."""
    disk, data = SimulatedDisk(), some_bytes()
    _, writer = a_replica(disk)
    disk.faults.fail_sync(1)
    await take(writer, data, REPLICATE_SYNC)
    await writer.close()
    disk.restart()

    _, writer = a_replica(disk)
    await come(writer, master)

    assert master.answers == [len(data)]
    disk.crash(1)
    store, writer = a_replica(disk)
    assert store.messages.read_raw(0, len(data)) == data
    await writer.close()
