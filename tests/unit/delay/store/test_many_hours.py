"""Two years with messages in every hour: open files, checkpoints, starts, clean-up (Q7, R7)."""

import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.layout import Encoding
from ternmq.core.errors import DiskFailed
from ternmq.core.ids import ProducerId
from ternmq.core.units import HOUR_MS
from ternmq.delay.formats.paths import DelayPaths, hour_name
from ternmq.delay.store.hour_files import FILES_OPEN_MAX, HourFiles
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.scheduler import SYNC_FILES
from ternmq.storage.files.disk import File
from ternmq.storage.log.append import Append
from ternmq.testing.disk import SimulatedDisk, SimulatedFile
from tests.unit.delay.builders import START_MS, Bench

HOURS = 17_568
OPEN_MAX = 2 * FILES_OPEN_MAX + SYNC_FILES + 8


class CountingDisk(SimulatedDisk):
    """Knows how many files are open, and how much was read of them."""

    def __init__(self) -> None:
        super().__init__()
        self.most_open = 0
        self.bytes_read = 0
        self._open: weakref.WeakSet[SimulatedFile] = weakref.WeakSet()

    def open(self, path: Path, *, create: bool) -> SimulatedFile:
        file = _Counted(self, path, super().open(path, create=create)._inode)
        self._open.add(file)
        self.most_open = max(self.most_open, len(self._open))
        return file


class _Counted(SimulatedFile):
    def pread(self, size: int, offset: int) -> bytes:
        data = super().pread(size, offset)
        assert isinstance(self._disk, CountingDisk)
        self._disk.bytes_read += len(data)
        return data


def test_a_message_in_every_hour_of_two_years() -> None:
    """Few open files while scheduling, syncing and starting; a start reads next to nothing."""
    bench = Bench()
    bench.disk = disk = CountingDisk()
    bench.start()
    for first in range(0, HOURS, 4_000):
        bench.send([START_MS + (first + at) * HOUR_MS for at in range(min(4_000, HOURS - first))])
    bench.schedule()
    assert len(bench.engine.hours) == HOURS
    now = bench.engine.snapshot(bench.clock.now_ms())
    behind = bench.store.checkpoints.behind(now)
    assert len(behind) == HOURS
    for at in range(0, HOURS, SYNC_FILES):
        bench.store.schedule_files.sync_many(behind[at : at + SYNC_FILES])
    assert bench.store.checkpoints.behind(now) == []
    bench.store.checkpoint(now)
    assert bench.engine.near.wanted(START_MS - 1) is None
    disk.bytes_read = 0

    bench.kill()

    assert len(bench.engine.hours) == HOURS
    assert disk.most_open <= OPEN_MAX
    wal = bench.store.wal.messages.safe_offset
    assert disk.bytes_read <= wal + 4_096, "only the message log, to know its producers"
    bench.prepare()
    assert sum(hour.index is not None for hour in bench.engine.hours.values()) <= 1


def send_large(bench: Bench, number: int, dues: list[int]) -> None:
    """One batch of a megabyte, so that the message log has several segments."""
    rows = [Outgoing(body=b"%d" % due + bytes(10_000), due_at_ms=due) for due in dues]
    producer = ProducerId(START_MS, 7)
    origin, first = Origin(topic="t", app="shop", producer=producer), number * len(rows)
    batch = encode_messages(rows, origin=origin, first_sequence=first, encoding=Encoding.PLAIN)
    append = Append(
        batch=batch,
        topic_id=1,
        count=len(rows),
        received_at_ms=START_MS,
        producer=check_incoming(batch).producer,
        first_sequence=first,
    )
    messages = bench.store.wal.messages
    staged = messages.stage([append])
    messages.write(staged)
    messages.commit(staged)


def test_what_is_over_is_removed_hour_by_hour() -> None:
    """Schedule logs and dispatch logs of hours that passed, and the message log behind them."""
    bench = Bench()
    paths = DelayPaths(Path("/delay"))
    for at in range(12):
        send_large(bench, at, [START_MS + at * HOUR_MS + 1_000 + row for row in range(100)])
    bench.prepare()
    bench.checkpoint()
    segments = len(bench.disk.names(paths.wal))
    assert segments > 2

    for at in range(12):
        while bench.clock.now_ms() < START_MS + at * HOUR_MS + 2_000:
            bench.clock.turn(60)
        bench.prepare()
        bench.tick()
        while bench.send_out():
            bench.tick()
        for _ in range(3):  # The durable mark of one checkpoint lets the next remove.
            bench.clock.turn(1)
            bench.checkpoint()
            bench.store.wal.producers_to = bench.store.known.scheduled
            bench.store.checkpoints.trim()
        over = (bench.clock.now_ms() - START_MS % HOUR_MS - START_MS) // HOUR_MS
        assert len(bench.disk.names(paths.schedule)) <= 12 - max(0, over - 1)
        assert len(bench.disk.names(paths.dispatch)) <= 3
    bench.clock.turn(2 * 3_600)
    for _ in range(3):
        bench.checkpoint()

    assert bench.disk.names(paths.schedule) == []
    assert bench.disk.names(paths.dispatch) == []
    assert len(bench.disk.names(paths.wal)) == 1
    assert bench.ledger() == (1_200, 0, 1_200, 0)
    bench.kill()
    assert bench.ledger() == (1_200, 0, 1_200, 0)


def test_syncs_side_by_side_count_only_when_all_are_done() -> None:
    """A failed one is final, as always, and none of its neighbours counts."""
    disk = SimulatedDisk()
    directory = Path("/d/schedule")
    disk.mkdir(directory)
    log = HourFiles(disk, directory)
    for hour in range(5):
        log.append(hour, [b"8 bytes."])
    asked: list[int] = []

    def backwards(work: object, files: Sequence[File]) -> None:
        asked.append(len(files))
        assert callable(work)
        for file in reversed(files):
            work(file)

    log.sync_many([0, 1], backwards)
    assert asked == [2]
    assert [log.behind(hour, 8) for hour in range(5)] == [False, False, True, True, True]
    disk.faults.fail_sync(2)
    with pytest.raises(DiskFailed):
        log.sync_many([2, 3, 4], backwards)

    assert log.failed is not None
    assert all(log.behind(hour, 8) for hour in (2, 3, 4))
    disk.crash(1)
    assert disk.read(directory / hour_name(0)) == b"8 bytes."


def test_a_checkpoint_says_nothing_that_is_not_on_disk() -> None:
    """Rows scheduled after the snapshot are none of its business."""
    bench = Bench()
    bench.send([START_MS + 5 * HOUR_MS] * 3)
    bench.prepare()
    now = bench.engine.snapshot(bench.clock.now_ms())
    bench.send([START_MS + 5 * HOUR_MS, START_MS + 9 * HOUR_MS])
    bench.prepare()
    store: DelayStore = bench.store
    hours = store.checkpoints.behind(now)
    assert len(hours) == 1
    store.checkpoint(now)
    bench.disk.crash(3)

    bench.start()

    assert bench.ledger() == (5, 5, 0, 0)
    assert sum(hour.rows for hour in bench.engine.hours.values()) == 5
