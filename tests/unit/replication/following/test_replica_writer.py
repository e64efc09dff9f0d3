"""What a replica does with its master's bytes, with a disk that can be held up."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ternmq.core.errors import DiskFailed
from ternmq.replication.following.replica_writer import ReplicaWriter
from ternmq.storage.log.replica_input import Received
from ternmq.wire.messages.replication import REPLICATE, REPLICATE_SYNC
from tests.waiting import until


class SlowLog:
    """A log whose sync waits for a word."""

    def __init__(self) -> None:
        self.end = 0
        self.safe_offset = 0
        self._come = Received(0)
        self.may_sync = threading.Event()
        self.synced = 0
        self.broken = False

    def receive(self, offset: int, data: object) -> None:
        assert isinstance(data, memoryview)
        self._come.end = offset + len(data)

    def take(self) -> Received | None:
        if self._come.end == self._come.start:
            return None
        taken, self._come = self._come, Received(self._come.end)
        return taken

    def write_received(self, received: Received, *, sync: bool) -> None:
        self.end = received.end
        if sync:
            self.sync()

    def forget_received(self) -> None:
        self._come = Received(self.end)

    def sync(self) -> None:
        if self.broken:
            raise DiskFailed("no more")
        assert self.may_sync.wait(10)
        self.synced = self.end

    def advance(self, to: int) -> None:
        self.safe_offset = to


@asynccontextmanager
async def running(
    log: SlowLog, *, from_memory: bool
) -> AsyncIterator[tuple[ReplicaWriter, list[int]]]:
    intake = ReplicaWriter({0: log}, from_memory=from_memory, on_safe=lambda number, found: None)
    answers: list[int] = []
    intake.restart(lambda number, end: answers.append(end))
    try:
        yield intake, answers
    finally:
        log.may_sync.set()
        await intake.close()


def frame(offset: int, size: int) -> bytearray:
    head = REPLICATE.pack(1, offset, 0, 0, 0, REPLICATE_SYNC)
    return bytearray(head) + bytes(size)


async def test_a_replica_answers_for_what_is_on_its_disk() -> None:
    log = SlowLog()
    async with running(log, from_memory=False) as (intake, answers):
        intake.take(frame(0, 10), 1)
        await until(lambda: log.end == 10)
        assert answers == []
        log.may_sync.set()
        await until(lambda: answers == [10])
        assert log.synced == 10


async def test_from_memory_it_answers_before_its_disk_and_syncs_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq.replication.following.replica_writer.SYNC_S", 0.01)
    log = SlowLog()
    async with running(log, from_memory=True) as (intake, answers):
        intake.take(frame(0, 10), 1)
        await until(lambda: 10 in answers)
        assert log.synced == 0
        log.may_sync.set()
        await until(lambda: log.synced == 10)


async def test_from_memory_a_failed_sync_is_a_failure_of_the_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq.replication.following.replica_writer.SYNC_S", 0.01)
    log = SlowLog()
    log.broken = True
    async with running(log, from_memory=True) as (intake, answers):
        intake.take(frame(0, 10), 1)
        await until(lambda: 10 in answers)
        async with asyncio.timeout(10):
            assert isinstance(await intake.failed, DiskFailed)
        log.broken = False


async def test_when_a_master_is_gone_the_log_stands_still_and_the_next_one_hears_nothing() -> None:
    """A slow disk: bytes of the old master wait, and would land behind the end that the new one is
    told. The end of the write that is under way is no answer to the new one either (seed 20624)."""
    log = SlowLog()
    async with running(log, from_memory=False) as (intake, answers):
        intake.take(frame(0, 10), 1)
        await until(lambda: log.end == 10)
        intake.take(frame(10, 5), 1)
        intake.halt()
        log.may_sync.set()
        await intake.settle()
        told = intake.ends()[0]
        await intake.alone(lambda: None)
        assert (told, log.end, answers) == (10, 10, [])
        intake.restart(lambda number, end: answers.append(end))
        intake.take(frame(10, 5), 1)
        await until(lambda: answers == [15])
