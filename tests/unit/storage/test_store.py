"""Opening and closing a data directory."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadConfig
from ternmq.storage.config import StorageConfig
from ternmq.storage.files import unclean_marker
from ternmq.storage.files.checkpoint import Checkpoint, decode
from ternmq.storage.files.disk import RealDisk
from ternmq.storage.files.paths import Paths
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import KnownLogs, Store
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import (
    DATA,
    MESSAGE_0,
    SMALL,
    TAIL_0,
    Maker,
    check_all,
    fresh,
    open_store,
    put_pulls,
    reopened,
)


def test_a_clean_stop_removes_the_marker_and_the_next_start_reads_no_messages() -> None:
    disk, store, maker = fresh()
    assert disk.exists(DATA / "unclean")
    maker.put_many(store, 20)
    store.close()
    store.close()
    assert not disk.exists(DATA / "unclean")
    disk.crash(seed=1)
    again = open_store(disk)
    assert not again.report.unclean
    assert again.report.scanned_records == 0
    check_all(again, maker.kept)


def test_a_kill_is_noticed_at_the_next_start() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 3)
    again = reopened(disk)
    assert again.report.unclean
    assert again.report.scanned_records == 3
    check_all(again, maker.kept)


def test_a_store_that_is_opened_again_at_once_syncs_nothing_for_it() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    assert store.close(again=True)
    assert disk.exists(DATA / "unclean")

    syncs = CountedSyncs(disk)
    again = open_store(syncs, again=True)  # type: ignore[arg-type]
    assert syncs.count == 0
    assert not again.report.unclean and again.report.scanned_records == 0
    check_all(again, maker.kept)
    again.close()
    assert not disk.exists(DATA / "unclean")


def test_a_store_that_was_to_be_opened_again_and_was_not_is_one_that_crashed() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    unclean_marker.note(disk, Paths(DATA), acks_from_memory=True)
    store.close(again=True)
    disk.crash(seed=1)
    start = open_store(disk)
    assert start.report.unclean, "the process is another one"
    assert unclean_marker.crashed_with_acks_from_memory(disk, Paths(DATA))
    check_all(start, maker.kept)

    start.close(again=True)
    open_store(disk, again=True)
    assert not unclean_marker.crashed_with_acks_from_memory(disk, Paths(DATA)), (
        "all of it was synced"
    )


def test_what_another_directory_had_is_no_reason_to_open_it_again() -> None:
    """Data may be moved aside between two roles."""
    disk = fresh()[0]
    disk.unlink(DATA / "unclean")
    syncs = CountedSyncs(disk)
    open_store(syncs, again=True)  # type: ignore[arg-type]
    assert syncs.count > 0


class CountedSyncs:
    """A disk that counts how often it has to wait for itself."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self.count = 0

    def sync_dir(self, directory: Path) -> None:
        self.count += 1
        self._disk.sync_dir(directory)

    def write_atomic(self, path: Path, content: bytes) -> None:
        self.count += 1
        self._disk.write_atomic(path, content)

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)


def test_a_store_that_answered_from_memory_says_so_after_a_crash() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 3)
    paths = Paths(DATA)
    assert not unclean_marker.crashed_with_acks_from_memory(disk, paths)
    unclean_marker.note(disk, paths, acks_from_memory=True)
    acks_from_memory = reopened(disk)
    assert unclean_marker.crashed_with_acks_from_memory(disk, paths), (
        "a start does not make it forgotten"
    )
    unclean_marker.note(disk, paths, acks_from_memory=False)
    assert not unclean_marker.crashed_with_acks_from_memory(disk, paths)
    acks_from_memory.close()
    assert not disk.exists(paths.unclean)


def test_the_checkpoint_tells_how_far_each_log_is_on_disk() -> None:
    """R14: last flush of log, consume queues, and here the pull log."""
    disk, store, maker = fresh()
    maker.put_many(store, 3)
    put_pulls(store, PullRecord(kind=PullKind.ACKED, group_id=1), sync=False)
    store.checkpoint()
    mark = decode(disk.read(DATA / "checkpoint"))
    assert mark == Checkpoint(
        clean=False,
        epoch=1,
        message_durable=store.messages.safe_offset,
        consume_covered=store.messages.safe_offset,
        pull_durable=store.pulls.safe_offset,
        pull_replay_from=0,
        stored_at_ms=maker.kept[-1].stored_at_ms,
        message_safe=store.messages.safe_offset,
        pull_safe=store.pulls.safe_offset,
    )
    before = disk.faults.write_count
    store.checkpoint()
    assert disk.faults.write_count == before, "nothing new, nothing written"


@pytest.mark.parametrize("content", [b"", b"short", bytes(64)])
def test_a_bad_checkpoint_file_costs_reading_only(content: bytes) -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    store.close()
    disk.place(DATA / "checkpoint", content)
    again = reopened(disk)
    assert again.report.notes
    check_all(again, maker.kept)


def test_a_full_disk_at_a_checkpoint_is_no_harm() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    for nth in range(1, 6):
        disk.faults.fail_write(nth, "full")
        store.checkpoint()
        disk.faults.clear()
        maker.put(store)
    check_all(store, maker.kept)
    check_all(reopened(disk), maker.kept)


def test_a_checkpoint_whose_sync_fails_is_given_up_and_costs_nothing() -> None:
    disk, store, maker = fresh(StorageConfig())
    maker.put_many(store, 3)
    store.checkpoint()
    maker.put_many(store, 3)
    disk.faults.fail_sync(1)
    store.checkpoint()
    maker.put_many(store, 3)
    store.checkpoint()
    check_all(store, maker.kept)
    disk.crash(seed=2)
    check_all(reopened(disk, StorageConfig()), maker.kept)


def test_tail_files_of_sealed_segments_are_removed() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 5)
    store.checkpoint()
    assert disk.exists(TAIL_0)
    maker.put_many(store, 5)
    store.checkpoint()
    assert not disk.exists(TAIL_0)
    assert len([name for name in disk.names(DATA / "consume") if name.endswith("tail")]) == 1
    disk.place(TAIL_0, b"left over by a crash")
    check_all(reopened(disk), maker.kept)
    assert not disk.exists(TAIL_0)


def test_the_data_tells_which_ids_and_epochs_it_uses() -> None:
    disk, store, maker = fresh()
    assert store.known() == KnownLogs(topic_ids=frozenset(), group_id=0, epoch=0)
    maker.put_many(store, 20, (3, 8))
    put_pulls(store, PullRecord(kind=PullKind.GROUP_MADE, group_id=6, lane_id=11))
    put_pulls(store, PullRecord(kind=PullKind.GROUP_DELETED, group_id=9))
    assert reopened(disk).known() == KnownLogs(topic_ids=frozenset({3, 8, 11}), group_id=9, epoch=1)


def test_the_epoch_is_known_without_a_checkpoint_and_never_falls() -> None:
    disk, store, maker = fresh()
    store.use_epoch(7)
    maker.put_many(store, 3)
    disk.remove(DATA / "checkpoint")
    again = reopened(disk)
    assert again.known().epoch == 7, "by the last batch"
    disk.restart()
    assert open_store(disk, epoch=1).known().epoch == 7, "by the checkpoint that `open` wrote"
    with pytest.raises(AssertionError):
        again.use_epoch(7)


def test_a_start_with_an_old_epoch_does_not_hide_the_later_one() -> None:
    disk = SimulatedDisk()
    open_store(disk, epoch=9).close()
    for _ in range(3):
        assert open_store(disk, epoch=1).known().epoch == 9


def test_the_epoch_is_read_from_an_older_batch_where_the_last_is_damaged() -> None:
    disk, store, maker = fresh()
    store.use_epoch(7)
    maker.put_many(store, 3)
    store.close()
    disk.remove(DATA / "checkpoint")
    disk.flip(MESSAGE_0, maker.kept[-1].offset + 20)
    assert reopened(disk).known().epoch == 7


def test_temporary_files_of_a_crash_are_removed() -> None:
    disk, store, _ = fresh()
    store.close()
    disk.place(DATA / "producers.tmp", b"half")
    disk.place(DATA / "consume" / "00000000000000000000.table.tmp", b"half")
    reopened(disk)
    assert not disk.exists(DATA / "producers.tmp")
    assert not [name for name in disk.names(DATA / "consume") if name.endswith(".tmp")]


def test_a_store_works_on_a_real_disk(tmp_path: Path) -> None:
    maker = Maker()

    def opened() -> Store:
        return Store.open(
            RealDisk(), tmp_path / "a" / "b", clock=SystemClock(), epoch=1, config=SMALL
        )

    store = opened()
    maker.put_many(store, 30, (1, 2))
    put_pulls(store, PullRecord(kind=PullKind.ACKED, group_id=1))
    store.checkpoint()
    maker.put_many(store, 5, (1, 2))
    check_all(store, maker.kept)
    killed = opened()
    check_all(killed, maker.kept)
    assert len(list(killed.pulls.replay())) == 1
    assert killed.report.scanned_records == 3  # The others are in a segment sealed meanwhile.
    assert len(killed.report.tables_rebuilt) == 1
    last = maker.kept[-1]
    assert killed.messages.read_nowait(last.offset, len(last.batch)) is not None
    killed.close()
    check_all(opened(), maker.kept)


@pytest.mark.parametrize(
    "wrong",
    [
        {"flush": "never"},
        {"segment_size": 10},
        {"min_free": -1},
        {"flush_bytes": 0},
        {"segment_batches_max": 1.5},
        {"producers_max": True},
    ],
)
def test_a_setting_out_of_its_limits_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        StorageConfig(**wrong)  # type: ignore[arg-type]


def test_an_empty_directory_opens_with_nothing_in_it() -> None:
    store = open_store(SimulatedDisk())
    assert store.messages.safe_offset == 0
    assert store.report.sound
    assert store.consume.topic_ids() == []


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_file_whose_name_a_killed_process_did_not_sync_is_made_durable_at_start(nth: int) -> None:
    """The next process sees the new segment; a power cut must not take it away again."""
    for seed in range(8):
        disk, store, maker = fresh()
        maker.put_many(store, 8)
        disk.faults.cut_power(nth)  # Around the roll to the next segment.
        staged = store.messages.stage([maker.append()])
        with suppress(PowerCut):
            store.messages.write(staged)
        again = reopened(disk)
        if again.messages.safe_offset > staged.appends[0].offset:
            maker.kept += staged.appends
        maker.put(again)
        disk.crash(seed)
        check_all(reopened(disk), maker.kept)


def put_after(store: Store, maker: Maker, job: Callable[[], list[int]]) -> list[int]:
    """What the loop does while the writer thread is busy with `job`."""
    done = job()
    maker.put(store, maker.append(rows=3))
    return done


def test_producers_remember_nothing_that_a_power_cut_can_take_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """flush=async: a batch committed while a checkpoint runs is in its snapshot of producers."""
    config = StorageConfig(flush="async", segment_batches_max=8)
    for seed in range(20):
        disk, store, maker = fresh(config)
        maker.put_many(store, 9)
        meanwhile = partial(put_after, store, maker, store.consume.write_tables)
        monkeypatch.setattr(store.consume, "write_tables", meanwhile)
        store.checkpoint()
        disk.crash(seed)
        again = reopened(disk, config)
        last = maker.kept[-1]
        in_log = again.messages.safe_offset > last.offset
        known = again.producers.find((11, 22), last.first_sequence, last.count)
        assert in_log == (known is not None)
