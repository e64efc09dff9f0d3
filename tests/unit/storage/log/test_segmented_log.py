"""One log in many files."""

import pytest

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull
from ternmq.storage.log.segmented_log import SegmentedLog, log_end
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import DATA


def make(disk: SimulatedDisk, size: int = 100) -> SegmentedLog:
    disk.mkdir(DATA)
    return SegmentedLog(disk, DATA, segment_size=size, files_open_max=2)


def put(source: SegmentedLog, *records: bytes, sync: bool = True) -> list[int]:
    plan = source.plan()
    offsets = [plan.place(record) for record in records]
    source.write(plan, sync=sync)
    return offsets


def test_a_record_that_does_not_fit_starts_the_next_segment() -> None:
    disk = SimulatedDisk()
    source = make(disk)
    assert put(source, b"a" * 60, b"b" * 40, b"c", b"d" * 300, b"e") == [0, 60, 100, 101, 401]
    assert source.bases == [0, 100, 101, 401]
    assert source.read(101, 300) == b"d" * 300
    assert source.read(90, 12) == b"b" * 10 + b"cd"
    assert disk.names(DATA) == [f"{base:020d}.log" for base in source.bases]


def test_a_segment_is_on_disk_before_the_next_one_exists() -> None:
    """So the name of the last segment proves everything below it."""
    disk = SimulatedDisk()
    source = make(disk)
    put(source, b"a" * 90, sync=False)
    assert source.synced == 0
    put(source, b"b" * 90, sync=False)
    assert source.synced == 90
    disk.crash(seed=7)
    assert len(disk.read(DATA / f"{0:020d}.log")) == 90


def test_a_plan_that_is_not_written_changes_nothing() -> None:
    source = make(SimulatedDisk())
    source.plan().place(b"x" * 500)
    assert put(source, b"y") == [0]


def test_a_failed_write_over_several_segments_is_undone_wholly() -> None:
    for nth in (1, 2, 3):
        disk = SimulatedDisk()
        source = make(disk)
        put(source, b"a" * 50)
        disk.faults.fail_write(nth, "full")
        with pytest.raises(DiskFull):
            put(source, b"b" * 50, b"c" * 90, b"d" * 90)
        assert (source.bases, source.end, source.synced) == ([0], 50, 50)
        assert disk.names(DATA) == [f"{0:020d}.log"]
        assert disk.read(DATA / f"{0:020d}.log") == b"a" * 50
        assert put(source, b"e") == [50]


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_while_a_write_is_undone_leaves_no_gap(seed: int) -> None:
    for nth in range(1, 9):
        disk = SimulatedDisk()
        source = make(disk)
        put(source, b"a" * 60)
        disk.faults.fail_write(4, "full")
        disk.faults.cut_power(16 + nth)
        with pytest.raises((DiskFull, PowerCut)):
            put(source, b"b" * 90, b"c" * 90, b"d" * 90, b"e" * 90)
        disk.crash(seed)
        source = make(disk)
        for number, base in enumerate(source.bases[1:]):
            assert source.physical_end(number) == base


def test_a_directory_that_cannot_be_synced_ends_the_log() -> None:
    disk = SimulatedDisk()
    source = make(disk)
    put(source, b"a" * 90)
    disk.faults.fail_sync(2)  # The first is the sealed segment's.
    with pytest.raises(DiskFailed):
        put(source, b"b" * 90)
    with pytest.raises(DiskFailed, match="restart"):
        source.plan()
    assert source.read(0, 90) == b"a" * 90


def test_the_oldest_segments_are_dropped_and_never_the_active_one() -> None:
    disk = SimulatedDisk()
    source = make(disk)
    for letter in b"abcd":
        put(source, bytes([letter]) * 90)
    assert source.drop_before(179) == 1
    assert source.drop_before(10**9) == 2
    assert (source.start, source.bases) == (270, [270])
    assert source.read(270, 90) == b"d" * 90
    with pytest.raises(Corrupt, match="before the start"):
        source.read(0, 90)
    assert make(disk).bases == [270]


def test_reading_past_the_end_is_corrupt_and_not_short() -> None:
    source = make(SimulatedDisk())
    put(source, b"a" * 50)
    with pytest.raises(Corrupt):
        source.read(40, 20)


def test_a_file_that_was_removed_behind_its_back_is_never_called_synced() -> None:
    disk = SimulatedDisk()
    source = make(disk)
    put(source, b"a" * 60)
    disk.remove(DATA / f"{0:020d}.log")
    with pytest.raises(DiskFailed, match="was removed"):
        put(source, b"b")
    assert source.failed is not None
    assert source.synced == 60


def test_a_removed_file_is_noticed_without_a_write() -> None:
    disk = SimulatedDisk()
    source = make(disk)
    put(source, b"a" * 60, b"b" * 60)
    source.cut(30)
    source.look()
    assert source.failed is None, "what it removes itself is not missed"
    disk.remove(DATA / f"{0:020d}.log")
    source.look()
    with pytest.raises(DiskFailed, match="was removed"):
        source.plan()


# Room: the active file is longer than the log.


def roomy(disk: SimulatedDisk, room: int = 40, size: int = 100) -> SegmentedLog:
    disk.mkdir(DATA)
    return SegmentedLog(disk, DATA, segment_size=size, room=room)


def sizes(disk: SimulatedDisk) -> list[int]:
    return [len(disk.read(DATA / name)) for name in disk.names(DATA)]


def test_room_is_made_ahead_of_small_records_up_to_the_size_of_a_segment() -> None:
    disk = SimulatedDisk()
    source = roomy(disk)
    put(source, b"a" * 10)
    assert sizes(disk) == [50]
    put(source, b"b" * 40)
    assert (sizes(disk), source.end) == ([50], 50)
    put(source, b"c" * 30)
    assert sizes(disk) == [100]
    assert source.read_some(0, 100) == b"a" * 10 + b"b" * 40 + b"c" * 30


def test_a_file_gets_its_true_size_when_the_next_begins_when_it_is_cut_and_when_it_is_closed() -> (
    None
):
    disk = SimulatedDisk()
    source = roomy(disk)
    put(source, b"a" * 70, b"b" * 70)
    assert sizes(disk) == [70, 100]
    source.cut(80)
    assert sizes(disk) == [70, 10]
    put(source, b"c" * 5)
    assert sizes(disk) == [70, 55]
    source.close()
    assert sizes(disk) == [70, 15]
    assert put(roomy(disk), b"d") == [85]


def test_a_disk_without_room_to_spare_is_used_up_to_its_end() -> None:
    disk = SimulatedDisk()
    source = roomy(disk)
    disk.free_size = 30
    put(source, b"a" * 10)
    put(source, b"b" * 20)
    assert (sizes(disk), disk.free_size) == ([30], 0)
    with pytest.raises(DiskFull):
        put(source, b"c")
    assert source.end == 30


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_failed_write_leaves_no_room_behind(nth: int) -> None:
    disk = SimulatedDisk()
    source = roomy(disk)
    put(source, b"a" * 50)
    disk.faults.fail_write(nth, "full")
    with pytest.raises(DiskFull):
        put(source, b"b" * 50, b"c" * 90, b"d" * 90)
    assert (source.bases, source.end, sizes(disk)) == ([0], 50, [50])
    assert put(source, b"e" * 50, b"f") == [50, 100]


def test_a_crash_leaves_records_and_zeros() -> None:
    for seed in range(50):
        disk = SimulatedDisk()
        source = roomy(disk, room=600, size=5_000)
        put(source, b"a" * 700)
        put(source, b"b" * 700, sync=False)
        disk.crash(seed)
        content = disk.read(DATA / f"{0:020d}.log")
        assert content[:700] == b"a" * 700
        assert set(content[700:]) <= set(b"b\0")
        assert log_end(disk, DATA) <= 1_400
