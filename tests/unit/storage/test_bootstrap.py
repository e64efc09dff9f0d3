"""A replica that begins where its master's logs begin, which is no longer at their first byte."""

from pathlib import Path

import pytest

from ternmq.core.errors import AlreadyExists, Corrupt
from ternmq.storage.bootstrap import install_base
from ternmq.storage.config import StorageConfig
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import DATA, Maker, fresh, open_store, put_pulls
from tests.unit.storage.replica_pair import follow

CONFIG = StorageConfig(segment_batches_max=4, pull_segment_size=64 * 1024)


def old_master() -> tuple[Store, Maker]:
    """Its first two segments are gone, of both logs."""
    _, master, maker = fresh(CONFIG)
    maker.put_many(master, 14, topic_ids=(1, 2, 7))
    put_pulls(master, PullRecord(kind=PullKind.GROUP_MADE, group_id=5, lane_id=1))
    for _ in range(3):
        put_pulls(
            master, PullRecord(kind=PullKind.ACKED, group_id=5, lane_id=1, text=bytes(60_000))
        )
    put_pulls(master, PullRecord(kind=PullKind.SNAPSHOT, group_id=5, lane_id=1))
    list(master.pulls.replay())
    master.checkpoint()
    assert master.drop_before(maker.kept[8].offset) == 2
    assert master.messages.start_offset > 0
    assert master.pulls.start_offset > 0
    return master, maker


def check(replica: Store, master: Store, maker: Maker) -> None:
    assert replica.messages.start_offset == master.messages.start_offset
    for topic_id in (1, 2, 7):
        assert replica.consume.bounds(topic_id) == master.consume.bounds(topic_id)
    for append in maker.kept:
        assert replica.producers.find((11, 22), append.first_sequence, append.count)
        if append.offset >= master.messages.start_offset:
            [entry] = replica.consume.entries(
                append.topic_id, append.base_sequence, rows_max=1, size_max=1
            )
            assert entry.offset == append.offset
    assert list(replica.pulls.replay()) == list(master.pulls.replay())


def test_an_empty_replica_gets_what_the_masters_logs_no_longer_tell() -> None:
    master, maker = old_master()
    disk = SimulatedDisk()
    open_store(disk, CONFIG, epoch=0, suffix=True).close()
    install_base(disk, DATA, master.base_state())
    replica = open_store(disk, CONFIG, epoch=0, suffix=True)
    assert replica.messages.end == master.messages.start_offset
    follow(master, replica)
    check(replica, master, maker)
    replica.close()
    for suffix in (True, False):
        replica = open_store(disk, CONFIG, epoch=0, suffix=suffix)
        assert replica.report.sound
        check(replica, master, maker)
        replica.close()


def test_a_base_taken_while_retention_is_at_work_begins_where_the_floor_is() -> None:
    """Between the floor file and the removal of the segment."""
    disk, master, maker = fresh(CONFIG)
    maker.put_many(master, 14, topic_ids=(1, 2, 7))
    master.checkpoint()
    bases: list[bytes] = []
    unlink = disk.unlink

    def watched(path: Path) -> None:
        if path.parent.name == "message":
            bases.append(master.base_state())
        unlink(path)

    disk.unlink = watched  # type: ignore[method-assign]
    assert master.drop_before(maker.kept[4].offset) == 1
    copy = SimulatedDisk()
    install_base(copy, DATA, bases[0])
    replica = open_store(copy, CONFIG, epoch=0, suffix=True)
    follow(master, replica)
    check(replica, master, maker)


def test_a_base_is_installed_as_a_whole_or_not_at_all() -> None:
    master, maker = old_master()
    base = master.base_state()
    for nth in range(1, 60):
        disk = SimulatedDisk()
        open_store(disk, CONFIG, epoch=0, suffix=True).close()
        disk.faults.cut_power(nth)
        try:
            install_base(disk, DATA, base)
        except PowerCut:
            disk.crash(nth)
        disk.faults.clear()
        replica = open_store(disk, CONFIG, epoch=0, suffix=True)
        assert replica.report.sound
        if replica.messages.end < master.messages.start_offset:
            assert (replica.messages.end, replica.pulls.end) == (0, 0)
            replica.close()
            install_base(disk, DATA, base)
            replica = open_store(disk, CONFIG, epoch=0, suffix=True)
        follow(master, replica)
        check(replica, master, maker)


def test_a_base_is_refused_where_there_is_something_and_where_it_is_damaged() -> None:
    master, _ = old_master()
    base = master.base_state()
    disk, store, maker = fresh()
    maker.put(store)
    store.close()
    with pytest.raises(AlreadyExists, match="move this one aside"):
        install_base(disk, DATA, base)
    with pytest.raises(Corrupt):
        install_base(SimulatedDisk(), DATA, base[:-1])
