"""Staging, writing, committing; what happens when the disk says no."""

import pytest

from ternmq.batch.layout import check_whole, read_stamp
from ternmq.core.errors import Corrupt, DiskFailed, DiskFull, Unavailable
from ternmq.storage.config import StorageConfig
from ternmq.storage.store import Store
from tests.unit.storage.builders import (
    DATA,
    MESSAGE_0,
    TurnedClock,
    check_all,
    fresh,
    open_store,
    reopened,
)


def test_batches_of_a_group_follow_each_other_with_sequences_per_topic() -> None:
    _, store, maker = fresh()
    staged = maker.put(store, maker.append(1, rows=3), maker.append(2), maker.append(1, rows=2))
    assert [append.base_sequence for append in staged.appends] == [0, 0, 3]
    assert [append.offset for append in staged.appends] == [
        0,
        len(staged.appends[0].batch),
        len(staged.appends[0].batch) + len(staged.appends[1].batch),
    ]
    check_all(store, maker.kept)


def test_the_stamp_tells_place_epoch_times_addresses_and_the_durable_mark() -> None:
    _, store, maker = fresh()
    first = maker.put(store).appends[0]
    append = maker.append(1, rows=2)
    append.client_ip, append.client_port = bytes(15) + b"\x01", 4242
    maker.put(store, append)
    stamp = check_whole(append.batch, at_offset=append.offset)
    assert (stamp.topic_id, stamp.base_sequence, stamp.epoch) == (1, 1, 1)
    assert (stamp.received_at_ms, stamp.stored_at_ms) == (44, 1_700_000_000_000)
    assert (stamp.client_ip[-1], stamp.client_port) == (1, 4242)
    assert stamp.durable_to == len(first.batch)


def test_nothing_is_visible_before_commit() -> None:
    _, store, maker = fresh()
    staged = store.messages.stage([maker.append()])
    assert store.consume.bounds(1) == (0, 0)
    store.messages.write(staged)
    assert store.consume.bounds(1) == (0, 0)
    assert store.messages.safe_offset == 0
    assert store.producers.find((11, 22), 0, 1) is None
    store.messages.commit(staged)
    assert store.consume.bounds(1) == (0, 1)
    assert store.messages.safe_offset == len(staged.appends[0].batch)
    assert store.producers.find((11, 22), 0, 1) is not None


def test_an_abandoned_group_leaves_no_trace() -> None:
    _, store, maker = fresh()
    maker.put(store)
    store.messages.abandon(store.messages.stage([maker.append(), maker.append(9)]))
    maker.put(store, maker.append(1))
    check_all(store, maker.kept)
    assert store.consume.bounds(9) == (0, 0)


def test_stored_time_never_goes_back_even_if_the_clock_does() -> None:
    disk, _, maker = fresh()
    clock = TurnedClock(5_000)
    store = open_store(disk, clock=clock)
    maker.put(store)
    clock.wall_ms = 3_000
    maker.put(store)
    clock.wall_ms = 9_000
    maker.put(store)
    assert [append.stored_at_ms for append in maker.kept] == [5_000, 5_000, 9_000]
    store.close()
    disk.restart()
    clock.wall_ms = 1_000
    maker.put(open_store(disk, clock=clock))
    assert maker.kept[-1].stored_at_ms == 9_000


def test_segments_roll_by_batches_and_by_size_and_offsets_run_on() -> None:
    disk, store, maker = fresh(StorageConfig(segment_batches_max=4))
    maker.put_many(store, 10, (1, 2))
    maker.put(store, *[maker.append(3) for _ in range(9)])  # One group over three segments.
    assert len(disk.names(DATA / "message")) == 5
    check_all(store, maker.kept)
    disk, store, maker = fresh(StorageConfig(segment_size=5 * 2**20))
    for _ in range(5):
        maker.put(store, maker.append(body=b"x" * 2_000_000))
    assert [int(name[:20]) for name in disk.names(DATA / "message")] == [
        maker.kept[0].offset,
        maker.kept[2].offset,
        maker.kept[4].offset,
    ]
    check_all(store, maker.kept)


def test_neighbouring_batches_are_read_at_once_also_across_two_segments() -> None:
    _, store, maker = fresh()
    maker.put_many(store, 10)
    size = store.messages.safe_offset
    assert store.messages.read(0, size) == b"".join(bytes(a.batch) for a in maker.kept)
    first_segment = maker.kept[8].offset
    assert store.messages.read_nowait(0, first_segment) is not None
    assert store.messages.read_nowait(0, size) is None


def test_reading_checks_every_byte() -> None:
    disk, store, maker = fresh()
    maker.put(store, maker.append(rows=2), maker.append())
    size = len(maker.kept[0].batch)
    for at in (0, 5, 20, 50, 130, 140, size - 1):
        disk.flip(MESSAGE_0, at)
        with pytest.raises(Corrupt):
            store.messages.read(0, size)
        with pytest.raises(Corrupt):
            store.messages.read_nowait(0, store.messages.safe_offset)
        disk.flip(MESSAGE_0, at)
    store.messages.read(0, size)


def test_whoever_knows_others_says_what_damage_means() -> None:
    disk, store, maker = fresh()
    maker.put(store)
    size = store.messages.safe_offset
    disk.restart()
    store = Store.open(
        disk,
        DATA,
        clock=TurnedClock(),
        epoch=2,
        config=StorageConfig(),
        on_corrupt=lambda error: Unavailable("others have it"),
    )
    disk.flip(MESSAGE_0, size - 1)
    with pytest.raises(Unavailable):
        store.messages.read(0, size)
    assert store.messages.read_nowait(0, size) is None, "for a thread to find out"
    with pytest.raises(Corrupt):
        store.messages.read(0, 0)  # Known to be lost since the start: no news.


def test_a_full_disk_refuses_a_group_and_the_next_one_works_when_space_is_back() -> None:
    disk, store, maker = fresh()
    maker.put(store)
    for how in ("full", "failed"):
        disk.faults.fail_write(1, how)
        with pytest.raises((DiskFull, DiskFailed)):
            maker.put(store, maker.append(1), maker.append(2))
        assert store.messages.failed is None
        assert len(disk.read(MESSAGE_0)) == store.messages.safe_offset
        maker.put(store, maker.append(2))
    check_all(store, maker.kept)
    disk.crash(seed=4)
    check_all(reopened(disk), maker.kept)


def test_a_full_disk_while_rolling_takes_the_new_segment_back() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 7)
    for nth in (1, 2):
        disk.faults.fail_write(nth, "full")
        with pytest.raises(DiskFull):
            maker.put(store, *[maker.append() for _ in range(4)])
        assert len(disk.names(DATA / "message")) == 1
    maker.put(store, *[maker.append() for _ in range(4)])
    check_all(store, maker.kept)
    disk.crash(seed=1)
    check_all(reopened(disk), maker.kept)


def test_a_short_write_is_continued() -> None:
    disk, store, maker = fresh()
    disk.faults.fail_write(1, "short")
    disk.faults.fail_write(2, "short")
    maker.put(store, maker.append(), maker.append(2, rows=5))
    check_all(store, maker.kept)


def test_a_reserve_of_free_space_is_kept_and_the_log_recovers_by_itself() -> None:
    """The pull log still has room, so consuming goes on."""
    disk, store, maker = fresh()
    clock = TurnedClock()
    store = open_store(disk, StorageConfig(min_free=1_000_000), clock=clock)
    maker.put(store)
    disk.free_size = 999_999
    maker.put(store)  # Not looked at again within a second.
    clock.seconds += 1
    for _ in range(2):
        with pytest.raises(DiskFull, match="reserved"):
            maker.put(store)
    disk.free_size = 1_000_000 + 300
    maker.put(store)  # Looked at as long as there is none to spare.
    with pytest.raises(DiskFull):
        maker.put(store)
    disk.free_size = 2_000_000
    maker.put(store)
    check_all(store, maker.kept)


def test_a_failed_sync_is_final_until_a_restart_and_reads_go_on() -> None:
    disk, store, maker = fresh()
    maker.put(store)
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        maker.put(store, maker.append(2))
    assert store.messages.failed is not None
    syncs = disk.faults.sync_count
    with pytest.raises(DiskFailed, match="restart"):
        store.messages.stage([maker.append()])
    with pytest.raises(DiskFailed):
        store.messages.sync()
    store.checkpoint()
    store.close()
    assert disk.faults.sync_count == syncs, "a failed sync is never tried again"
    assert disk.exists(DATA / "unclean")
    disk.crash(seed=3)
    again = reopened(disk)
    check_all(again, maker.kept)
    maker.put(again)


def test_a_failed_sync_when_undoing_a_failed_write_is_final_too() -> None:
    disk, store, maker = fresh()
    maker.put(store)
    disk.faults.fail_write(1, "full")
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFull):
        maker.put(store)
    with pytest.raises(DiskFailed):
        store.messages.stage([maker.append()])
    check_all(store, maker.kept)


def test_async_flush_is_safe_at_once_and_durable_by_bytes_or_time() -> None:
    """R17 (flush part)."""
    disk, _, maker = fresh()
    clock = TurnedClock()
    config = StorageConfig(flush="async", flush_bytes=1_000, flush_interval_ms=100)
    store = open_store(disk, config, clock=clock)
    syncs = disk.faults.sync_count
    maker.put(store)
    assert disk.faults.sync_count == syncs
    check_all(store, maker.kept)
    maker.put(store)
    assert read_stamp(maker.kept[-1].batch).durable_to == 0
    store.messages.sync_due()
    assert store.messages.synced_offset == 0
    clock.seconds += 0.1
    store.messages.sync_due()
    assert store.messages.synced_offset == store.messages.safe_offset
    maker.put(store, maker.append(body=b"x" * 1_000))
    assert store.messages.synced_offset == store.messages.safe_offset
    maker.put(store)
    assert read_stamp(maker.kept[-1].batch).durable_to == maker.kept[-1].offset


@pytest.mark.parametrize("seed", range(20))
def test_async_flush_loses_at_a_power_cut_only_what_was_not_synced(seed: int) -> None:
    disk, _, maker = fresh()
    store = open_store(disk, StorageConfig(flush="async"))
    maker.put_many(store, 5)
    store.checkpoint()
    durable = len(maker.kept)
    maker.put_many(store, 5)
    disk.crash(seed)
    again = open_store(disk)
    assert again.report.sound
    kept = [a for a in maker.kept if a.offset < again.messages.safe_offset]
    assert len(kept) >= durable
    check_all(again, kept)


def test_two_groups_at_a_time_are_a_bug_of_the_caller() -> None:
    _, store, maker = fresh()
    staged = store.messages.stage([maker.append()])
    with pytest.raises(AssertionError):
        store.messages.stage([maker.append()])
    with pytest.raises(AssertionError):
        store.messages.commit(staged)
