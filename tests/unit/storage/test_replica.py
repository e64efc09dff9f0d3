"""Stores of a master and a replica: receiving, becoming safe, restarting, being cut."""

import sys
import threading
from pathlib import Path

import pytest

from ternmq.core.errors import Corrupt, DiskFailed, Diverged, ProtocolError
from ternmq.storage.config import StorageConfig
from ternmq.storage.files.disk import RealDisk
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import (
    DATA,
    MESSAGE_0,
    SMALL,
    Maker,
    TurnedClock,
    check_all,
    fresh,
    open_store,
    put_pulls,
)
from tests.unit.storage.replica_pair import advance, follow, stream

MADE = PullRecord(kind=PullKind.GROUP_MADE, group_id=5, lane_id=1)


def replica(config: StorageConfig = SMALL) -> tuple[SimulatedDisk, Store]:
    disk = SimulatedDisk()
    return disk, open_store(disk, config, epoch=0, suffix=True)


def again(disk: SimulatedDisk, *, suffix: bool = True) -> Store:
    disk.restart()
    return open_store(disk, epoch=0, suffix=suffix)


@pytest.mark.parametrize("size", [1, 100, 1000, 1 << 20])
def test_a_replica_has_the_masters_bytes_and_everything_derived_from_them(size: int) -> None:
    _, master, maker = fresh()
    disk, copy = replica(StorageConfig(segment_batches_max=5))
    maker.put_many(master, 20 if size > 1 else 3, topic_ids=(1, 2, 7))
    put_pulls(master, MADE)
    appends = follow(master, copy, size=size)
    assert [(a.offset, a.topic_id, a.count) for a in appends] == [
        (a.offset, a.topic_id, a.count) for a in maker.kept
    ]
    check_all(copy, maker.kept)
    for append in maker.kept:
        assert copy.producers.find((11, 22), append.first_sequence, append.count)
    assert [record for _, record in copy.pulls.replay()] == [MADE]
    assert copy.messages.stored_at_ms == master.messages.stored_at_ms
    copy.close()
    check_all(again(disk, suffix=False), maker.kept)


def test_nothing_is_visible_before_it_is_safe() -> None:
    _, master, maker = fresh()
    disk, copy = replica()
    maker.put_many(master, 3)
    follow(master, copy)
    maker.put_many(master, 20)
    stream(master, copy)
    assert copy.messages.end == master.messages.end
    check_all(copy, maker.kept[:3])
    copy.checkpoint()
    copy = again(disk)
    assert copy.messages.end == master.messages.end
    check_all(copy, maker.kept[:3])
    assert copy.messages.rows_from(0) == {1: master.consume.bounds(1)}
    assert len(advance(copy, maker.kept[10].offset, 0)) == 7
    check_all(copy, maker.kept[:10])
    copy.checkpoint()
    copy = again(disk)
    check_all(copy, maker.kept[:10])
    assert copy.report.sound
    advance(copy, copy.messages.end, 0)
    check_all(copy, maker.kept)


def test_bytes_that_do_not_check_or_follow_on_are_refused() -> None:
    _, master, maker = fresh()
    _, copy = replica()
    maker.put_many(master, 3)
    data = bytearray(master.messages.read_raw(0, 1 << 20))
    data[300] ^= 1
    with pytest.raises(Corrupt):
        copy.messages.receive(0, data)
    with pytest.raises(ProtocolError, match="goes on at 0"):
        copy.messages.receive(8, data)
    assert copy.messages.take() is None
    follow(master, copy)
    check_all(copy, maker.kept)


def test_a_write_that_fails_is_forgotten_and_asked_for_again() -> None:
    _, master, maker = fresh()
    disk, copy = replica()
    maker.put_many(master, 3)
    copy.messages.receive(0, master.messages.read_raw(0, 1000))
    received = copy.messages.take()
    assert received is not None
    disk.faults.fail_write(1, "failed")
    with pytest.raises(DiskFailed):
        copy.messages.write_received(received, sync=True)
    copy.messages.forget_received()
    assert copy.messages.received_end == 0
    follow(master, copy)
    check_all(copy, maker.kept)


def test_a_cut_suffix_leaves_what_is_safe_and_can_go_on_differently() -> None:
    _, old, maker = fresh()
    disk, copy = replica()
    maker.put_many(old, 3)
    put_pulls(old, MADE)
    follow(old, copy)
    safe = old.messages.safe_offset, old.pulls.safe_offset
    kept = list(maker.kept)
    maker.put_many(old, 20)
    put_pulls(old, PullRecord(kind=PullKind.GROUP_DELETED, group_id=5))
    stream(old, copy)
    copy.checkpoint()
    copy.truncate(*safe)
    assert (copy.messages.end, copy.pulls.end) == safe
    for _ in range(2):
        assert copy.report.sound
        check_all(copy, kept)
        assert [record for _, record in copy.pulls.replay()] == [MADE]
        copy = again(disk)
    other = Maker()
    other.next_sequence = 1000
    copy.begin_epoch(9)
    for _ in range(12):
        other.put(copy, other.append(1, body=b"different"))
    check_all(copy, kept + other.kept)
    check_all(again(disk, suffix=False), kept + other.kept)


def test_a_segment_that_a_cut_left_empty_is_the_next_one_all_the_same() -> None:
    _, old, maker = fresh()
    disk, copy = replica(StorageConfig(segment_batches_max=3))
    maker.put_many(old, 3)
    follow(old, copy)
    kept = list(maker.kept)
    maker.put_many(old, 2)
    stream(old, copy)
    copy.truncate(copy.messages.safe_offset, 0)
    copy.begin_epoch(2)
    other = Maker()
    other.next_sequence = 1000
    for _ in range(4):
        other.put(copy, other.append(1))
    copy.checkpoint()
    assert [(one.base, one.end) for one in copy.consume.sealed()] == [
        (0, kept[2].offset + len(kept[2].batch)),
        (other.kept[0].offset, other.kept[3].offset),
    ]
    check_all(copy, kept + other.kept)
    check_all(again(disk, suffix=False), kept + other.kept)


def test_a_cut_is_finished_after_a_power_cut_at_any_step() -> None:
    for nth in range(1, 40):
        _, old, maker = fresh()
        disk, copy = replica(StorageConfig(segment_batches_max=3))
        maker.put_many(old, 4)
        put_pulls(old, MADE)
        follow(old, copy)
        safe, kept = (old.messages.safe_offset, old.pulls.safe_offset), list(maker.kept)
        maker.put(old, *(maker.append() for _ in range(9)))  # One round: no batch says it counts.
        put_pulls(old, PullRecord(kind=PullKind.GROUP_DELETED, group_id=5))
        stream(old, copy)
        copy.checkpoint()
        disk.faults.cut_power(nth)
        try:
            copy.truncate(*safe)
        except PowerCut:
            disk.crash(nth)
        copy = again(disk)
        assert copy.report.sound
        ends = copy.messages.end, copy.pulls.end
        assert ends in (safe, (old.messages.end, old.pulls.end))
        copy.truncate(*safe)
        check_all(copy, kept)
        follow(old, copy)
        check_all(copy, maker.kept)


def test_a_cut_that_fails_stops_the_logs_until_a_restart() -> None:
    """The intent may be on disk: whatever was written now would be cut off with the rest."""
    for nth in range(2, 9):
        _, old, maker = fresh()
        disk, copy = replica()
        maker.put_many(old, 4)
        stream(old, copy)
        copy.checkpoint()
        disk.faults.fail_sync(nth)
        try:
            copy.truncate(0, 0)
        except DiskFailed:
            failed = copy.messages.failed
            assert failed or not disk.exists(DATA / "epochs")
        copy.close()
        copy = again(disk)
        assert copy.report.sound
        end = copy.messages.end
        disk.crash(nth)  # What was cut in vain must not come back now.
        assert open_store(disk, epoch=0, suffix=True).messages.end == end


def test_what_was_acknowledged_is_never_cut() -> None:
    _, master, maker = fresh()
    _, copy = replica()
    maker.put_many(master, 3)
    follow(master, copy)
    with pytest.raises(Diverged, match="Nothing is deleted"):
        copy.truncate(maker.kept[2].offset, 0)
    check_all(copy, maker.kept)


def test_a_deposed_master_leaves_its_last_round_as_suffix() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 3)
    staged = store.messages.stage([maker.append()])
    store.messages.write(staged)
    store.close()
    store = again(disk)
    assert store.messages.end == staged.plan.end
    check_all(store, maker.kept)
    store.truncate(store.messages.safe_offset, store.pulls.end)
    check_all(again(disk, suffix=False), maker.kept)


def test_progress_is_safe_only_when_the_members_have_it() -> None:
    disk, store, _ = fresh()
    for number, record in enumerate((MADE, PullRecord(kind=PullKind.GROUP_DELETED, group_id=5))):
        staged = store.pulls.stage([record])
        store.pulls.write(staged, sync=True)
        store.pulls.commit(staged, safe=False)
        if not number:
            store.pulls.advance(store.pulls.end)
    assert store.pulls.bounds()[1] == store.pulls.safe_offset < store.pulls.end
    list(store.pulls.replay())
    assert store.pulls.replay_from() == 0  # The group is deleted only in the suffix.
    store.checkpoint()
    store = again(disk)
    assert store.pulls.replay_from() == 0
    assert len(list(store.pulls.replay())) == 2
    store.pulls.advance(store.pulls.end)
    assert store.pulls.replay_from() == store.pulls.end


def test_checkpoints_run_while_rounds_and_records_become_safe(tmp_path: Path) -> None:
    """A master commits on the loop while its writer thread checkpoints."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    store = Store.open(RealDisk(), tmp_path, clock=TurnedClock(), epoch=1, config=SMALL)
    list(store.pulls.replay())
    maker, stop, failed = Maker(), threading.Event(), []

    def checkpoints() -> None:
        while not stop.is_set():
            try:
                store.checkpoint()
            except Exception as error:
                failed.append(error)

    try:
        for number in range(200):
            staged = store.messages.stage([maker.append(1 + number % 3)])
            store.messages.write(staged)
            records = [
                PullRecord(kind=PullKind.GROUP_MADE, group_id=number * 5 + i) for i in range(5)
            ]
            pulls = store.pulls.stage(records)
            store.pulls.write(pulls, sync=True)
            store.pulls.commit(pulls, safe=False)
            stop.clear()
            thread = threading.Thread(target=checkpoints)
            thread.start()
            store.messages.commit(staged)
            store.pulls.advance(store.pulls.end)
            maker.kept += staged.appends
            stop.set()
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed
    check_all(store, maker.kept)
    store = Store.open(RealDisk(), tmp_path, clock=TurnedClock(), epoch=2, config=SMALL)
    check_all(store, maker.kept)
    assert len(list(store.pulls.replay())) == 1000


def test_marks_of_a_masters_disk_say_nothing_about_a_replicas() -> None:
    """A replica that lost power in a large write has a torn tail, not a damaged log."""
    _, master, maker = fresh()
    for _ in range(6):
        maker.put(master, maker.append(body=bytes(700)))
    disk, copy = replica()
    copy.adopt_epochs({0: [(1, 0)], 1: [(1, 0)]})
    stream(master, copy)
    disk.flip(MESSAGE_0, maker.kept[2].offset + 300)  # As if this sector was never written.
    disk.remove(DATA / "message.mark")  # Nor the mark behind it.
    copy = again(disk)
    assert copy.report.sound
    assert copy.messages.end == maker.kept[2].offset
    follow(master, copy)
    check_all(copy, maker.kept)


def test_a_replica_reports_damage_of_what_it_had_on_disk() -> None:
    _, master, maker = fresh()
    maker.put_many(master, 6)
    disk, copy = replica()
    copy.adopt_epochs({0: [(1, 0)], 1: [(1, 0)]})
    stream(master, copy)
    copy.checkpoint()
    disk.flip(MESSAGE_0, maker.kept[2].offset + 300)
    copy = again(disk)
    assert not copy.report.sound
    with pytest.raises(Corrupt):
        advance(copy, copy.messages.end, 0)


def test_a_directory_of_an_earlier_release_opens_as_before() -> None:
    disk, store, maker = fresh()
    maker.put_many(store, 20)
    store.close()
    assert not disk.exists(DATA / "epochs")
    for suffix in (False, True):
        store = again(disk, suffix=suffix)
        check_all(store, maker.kept)
        store.close()
