"""Rounds of a broker with replicas: written here, counted when the others have them."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from ternmq.broker.log.commit import Committer
from ternmq.core.errors import DiskFailed, DiskFull, ReadOnly, TernError, Unavailable
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.append import Append
from ternmq.storage.pull.pull_log import PullRecord
from ternmq.storage.pull.record import PullKind
from ternmq.storage.store import Store
from ternmq.testing.disk import SimulatedDisk
from ternmq.wire.messages.replication import MESSAGES, PULLS
from tests.unit.storage.builders import Maker, open_store
from tests.waiting import until


class Others:
    """A `Safety` that says what a test tells it."""

    def __init__(self) -> None:
        self.refusal: TernError | None = None
        self.paused = False
        self.lacks = ""
        self.alone = False
        self.copied = False
        self.marks = {MESSAGES: 0, PULLS: 0}
        self.ends = {MESSAGES: 0, PULLS: 0}
        self.durable = {MESSAGES: 0, PULLS: 0}
        self.offered: list[tuple[int, int]] = []
        self.broken: list[TernError] = []
        self.moved: Callable[[], None] = lambda: None

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        self.offered.append((log, offset))

    def wrote(self, log: int, end: int, durable: int) -> None:
        self.ends[log], self.durable[log] = end, durable

    def mark(self, log: int) -> int:
        return self.marks[log]

    def undone(self, error: TernError) -> bool:
        self.broken.append(error)
        return not self.alone

    def watch(self, moved: Callable[[], None]) -> None:
        self.moved = moved

    def have(self, log: int) -> None:
        """The replicas have what is written here."""
        self.marks[log] = self.ends[log]
        self.moved()


class Desk:
    """A committer, and what it told."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store: Store = open_store(self.disk)
        self.others = Others()
        self.safe: list[Append] = []
        self.told: list[tuple[Append, TernError | None]] = []
        self.maker = Maker()
        self.committer = Committer(self.store, self.others)
        self.committer.watch(self.safe.extend)

    def send(self) -> Append:
        append = self.maker.append()
        self.committer.append(append, lambda *said: self.told.append(said))
        return append

    async def written(self, log: int) -> None:
        before = self.others.ends[log]
        await until(lambda: self.others.ends[log] > before, "a write")


@pytest.fixture
async def desk() -> Desk:
    return Desk()


def progress() -> PullRecord:
    return PullRecord(kind=PullKind.ACKED, group_id=1, lane_id=1, ranges=((0, 1, 0),))


async def test_a_round_is_answered_and_seen_when_the_replicas_have_it(desk: Desk) -> None:
    append = desk.send()
    await desk.written(MESSAGES)
    assert (desk.told, desk.safe) == ([], [])
    assert desk.store.messages.safe_offset == 0

    desk.others.have(MESSAGES)

    assert desk.told == [(append, None)]
    assert desk.safe == [append]


async def test_the_next_round_waits_for_the_open_one_and_follows_on_it(desk: Desk) -> None:
    first = desk.send()
    await desk.written(MESSAGES)
    second = desk.send()
    desk.others.have(MESSAGES)
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)

    assert [append for append, _ in desk.told] == [first, second]
    assert (first.base_sequence, second.base_sequence) == (0, 1)


async def test_progress_goes_on_while_a_round_is_open(desk: Desk) -> None:
    desk.send()
    await desk.written(MESSAGES)
    desk.committer.progress(progress())
    await desk.written(PULLS)

    assert desk.store.pulls.end > 0
    assert desk.store.pulls.safe_offset == 0, "a replica may not have it"


async def test_a_publish_without_records_leaves_the_pull_log_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[object] = []
    for step in ("stage", "write", "commit", "advance"):
        monkeypatch.setattr(desk.store.pulls, step, lambda *said, **more: touched.append(said))
    desk.others.alone = True
    desk.others.marks[MESSAGES] = 2**63
    append = desk.send()
    await until(lambda: desk.told == [(append, None)], "an answer")

    assert touched == [] and desk.others.offered == [(MESSAGES, 0)]


async def test_old_progress_is_synced_though_no_more_comes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ternmq.replication.group_commit.SYNC_S", 0.02)
    pulls = desk.store.pulls
    looked, sync = threading.Event(), pulls.sync
    monkeypatch.setattr(pulls, "sync", lambda: looked.wait() and sync())
    desk.committer.progress(progress())
    await desk.written(PULLS)
    assert (pulls.synced_offset, desk.others.durable[PULLS]) == (0, 0)
    looked.set()
    await until(lambda: desk.others.durable[PULLS] == pulls.end, "a sync")

    assert pulls.synced_offset == pulls.end > 0


async def test_a_decision_is_told_when_the_replicas_have_it(desk: Desk) -> None:
    deciding = desk.committer.decide([progress()])
    await desk.written(PULLS)
    assert not deciding.done()

    desk.others.have(PULLS)

    await deciding
    assert desk.store.pulls.safe_offset == desk.store.pulls.end


async def test_read_only_refuses_what_comes_and_what_waits_but_not_what_is_open(desk: Desk) -> None:
    opened = desk.send()
    await desk.written(MESSAGES)
    waiting = desk.send()
    desk.others.refusal = ReadOnly("no replica")
    desk.others.moved()
    late = desk.send()

    assert [append for append, _ in desk.told] == [waiting, late]
    assert all(isinstance(error, ReadOnly) for _, error in desk.told)
    desk.others.have(MESSAGES)
    assert desk.told[-1] == (opened, None)


async def test_while_paused_messages_wait_and_are_stored_after(desk: Desk) -> None:
    desk.others.paused = True
    append = desk.send()
    await desk.committer.alone(lambda: None)
    assert desk.store.messages.end == 0

    desk.others.paused = False
    desk.others.moved()
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)
    assert desk.told == [(append, None)]


async def test_bytes_are_passed_on_after_the_first_write_and_then_before_each(desk: Desk) -> None:
    desk.send()
    assert desk.others.offered == []
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)
    end = desk.store.messages.end
    desk.send()
    await until(lambda: (MESSAGES, end) in desk.others.offered, "an offer")

    assert desk.others.offered[0] == (MESSAGES, 0)


async def test_what_was_passed_on_and_cannot_be_written_ends_the_leadership(desk: Desk) -> None:
    desk.send()
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)
    desk.disk.faults.fail_write(1, "full")
    desk.send()
    await until(lambda: len(desk.told) == 2, "an answer")

    assert [type(error) for error in desk.others.broken] == [DiskFull]


async def test_what_a_replica_may_have_is_not_refused(desk: Desk) -> None:
    """Found by the cluster simulation: a full disk was told as a refusal, the producer went to
    another broker group, and the replica that led next had stored it too."""
    desk.send()
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)
    desk.disk.faults.fail_write(1, "full")
    desk.send()
    await until(lambda: len(desk.told) == 2, "an answer")

    assert type(desk.told[1][1]) is Unavailable


async def test_a_full_disk_is_a_refusal_where_nobody_else_has_it(desk: Desk) -> None:
    desk.others.alone = True
    desk.disk.faults.fail_write(1, "full")
    desk.send()
    await until(lambda: len(desk.told) == 1, "an answer")

    assert type(desk.told[0][1]) is DiskFull


async def test_nothing_is_written_in_the_place_of_what_a_replica_may_have(desk: Desk) -> None:
    """Found by the cluster simulation: what groups did while the leadership ended was written where
    replicas had other records of the same epoch, and they never fitted together again."""
    desk.send()
    await desk.written(MESSAGES)
    desk.others.have(MESSAGES)
    desk.committer.progress(progress())
    await desk.written(PULLS)
    desk.disk.faults.fail_write(1, "full")
    desk.committer.progress(progress())
    await until(lambda: bool(desk.others.broken), "the end of the leadership")
    end = desk.store.pulls.end
    desk.committer.progress(progress())
    deciding = desk.committer.decide([progress()])
    desk.send()
    async with asyncio.timeout(10):
        await desk.committer.close()

    assert desk.store.pulls.end == end
    assert isinstance(deciding.exception(), Unavailable)
    assert type(desk.told[-1][1]) is Unavailable


async def test_a_failed_disk_ends_the_leadership_though_nothing_was_passed_on(desk: Desk) -> None:
    desk.disk.faults.fail_sync(1)
    desk.send()
    await until(lambda: len(desk.told) == 1, "an answer")

    assert [type(error) for error in desk.others.broken] == [DiskFailed]


async def test_an_open_round_is_not_answered_by_stopping(desk: Desk) -> None:
    desk.send()
    await desk.written(MESSAGES)
    async with asyncio.timeout(10):
        await desk.committer.close()

    assert desk.told == []


async def test_progress_outlives_a_lone_broker_as_soon_as_it_is_written(desk: Desk) -> None:
    desk.others.alone = True
    desk.committer.progress(progress())
    async with asyncio.timeout(5):
        await desk.committer.progress_durable()

    assert desk.store.pulls.end > 0
    assert desk.store.pulls.synced_offset == 0


async def test_progress_outlives_a_master_when_the_replicas_have_it(desk: Desk) -> None:
    desk.committer.progress(progress())
    waiting = desk.committer.progress_durable()
    await desk.written(PULLS)
    assert not waiting.done()

    desk.others.have(PULLS)
    await asyncio.sleep(0)

    assert waiting.done()


async def test_a_replica_that_comes_meanwhile_has_to_have_it_too(desk: Desk) -> None:
    desk.others.alone = True
    desk.committer.progress(progress())
    waiting = desk.committer.progress_durable()
    desk.others.alone = False
    await desk.written(PULLS)
    assert not waiting.done()

    desk.others.have(PULLS)

    async with asyncio.timeout(5):
        await waiting
