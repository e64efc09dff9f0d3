"""The spool's file: nothing that was accepted is lost, also by a torn write (D6)."""

from pathlib import Path

import pytest

from ternmq.client.spool import spool_file
from ternmq.client.spool.spool_file import SpoolFile
from ternmq.core.errors import BadConfig, BufferFull, Corrupt, DiskFull
from ternmq.core.units import MIB
from ternmq.testing.disk import SimulatedDisk


def ids(log: SpoolFile) -> list[bytes]:
    return [entry.id for entry in log.recover()]


def test_what_was_accepted_is_there_again(tmp_path: Path) -> None:
    log = SpoolFile(tmp_path / "s", size_max=MIB)
    entries = [log.put("t", b"%d" % number, b"body") for number in range(5)]
    log.give(entries[1].offset, entries[2].end, "b")
    log.settle(entries[0].end)
    log.close()

    again = SpoolFile(tmp_path / "s", size_max=MIB)
    found = again.recover()
    assert [entry.id for entry in found] == [b"1", b"2", b"3", b"4"]
    assert [entry.broker_group for entry in found] == ["b", "b", None, None]
    assert (found[0].topic, found[0].content) == ("t", b"body")
    again.settle(found[-1].end)
    again.close()
    assert ids(SpoolFile(tmp_path / "s", size_max=MIB)) == []


def test_many_that_were_given_in_parts_are_there_again(tmp_path: Path) -> None:
    """A start reads a large backlog once, however many parts of it had been sent."""
    log = SpoolFile(tmp_path, size_max=MIB)
    entries = [log.put("t", b"%d" % number, b"") for number in range(100)]
    for first in range(0, 50, 10):
        log.give(entries[first].offset, entries[first + 9].end, f"b{first}")
    log.settle(entries[24].end)
    log.close()

    found = SpoolFile(tmp_path, size_max=MIB).recover()
    assert [entry.id for entry in found] == [b"%d" % number for number in range(25, 100)]
    groups = [entry.broker_group for entry in found]
    assert groups == ["b20"] * 5 + ["b30"] * 10 + ["b40"] * 10 + [None] * 50


def test_a_full_disk_gets_room_by_what_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of settled messages go even if that cannot be noted."""
    monkeypatch.setattr(spool_file, "SEGMENT_SIZE", 200)
    disk = SimulatedDisk()
    log = SpoolFile(tmp_path, size_max=MIB, disk=disk)
    entries = [log.put("t", b"%d" % number, b"x" * 50) for number in range(10)]
    files = len(disk.names(tmp_path))
    disk.faults.fail_write(1, "full")
    with pytest.raises(DiskFull):
        log.put("t", b"no", b"")
    disk.faults.fail_write(1, "full")
    log.give(entries[0].offset, entries[9].end, "b")  # By the reserve.
    assert "reserve" not in disk.names(tmp_path)
    for nth in (1, 2):  # The reserve cannot be made again, nor the note be written.
        disk.faults.fail_write(nth, "full")
    with pytest.raises(DiskFull):
        log.settle(entries[8].end)
    assert len(disk.names(tmp_path)) < files
    log.put("t", b"10", b"")
    log.close()

    kept = ids(SpoolFile(tmp_path, size_max=MIB, disk=disk))
    assert kept[-2:] == [b"9", b"10"]
    assert b"no" not in kept


@pytest.mark.parametrize("missing", range(1, 40))
def test_a_torn_tail_is_cut(tmp_path: Path, missing: int) -> None:
    """Every length a crash can leave of the last record."""
    log = SpoolFile(tmp_path, size_max=MIB)
    log.put("t", b"first", b"whole")
    last = log.put("t", b"last", b"x" * 30)
    log.close()
    (file,) = tmp_path.glob("*.log")
    with file.open("r+b") as opened:
        opened.truncate(last.end - missing)

    again = SpoolFile(tmp_path, size_max=MIB)
    assert ids(again) == [b"first"]
    again.put("t", b"next", b"")
    again.close()
    assert ids(SpoolFile(tmp_path, size_max=MIB)) == [b"first", b"next"]


def test_damage_before_whole_records_is_reported_and_nothing_deleted(tmp_path: Path) -> None:
    log = SpoolFile(tmp_path, size_max=MIB)
    entry = log.put("t", b"first", b"hurt")
    log.put("t", b"last", b"whole")
    log.close()
    (file,) = tmp_path.glob("*.log")
    with file.open("r+b") as opened:
        opened.seek(entry.end - 1)
        opened.write(b"\xff")
    before = file.read_bytes()

    with pytest.raises(Corrupt, match="move the directory away"):
        SpoolFile(tmp_path, size_max=MIB).recover()
    assert file.read_bytes() == before


def test_a_full_spool_refuses_and_has_room_again(tmp_path: Path) -> None:
    log = SpoolFile(tmp_path, size_max=1_000)
    first = log.put("t", b"1", b"x" * 800)
    with pytest.raises(BufferFull, match="raise spool_size_max"):
        log.put("t", b"2", b"x" * 800)
    log.settle(first.end)
    log.put("t", b"2", b"x" * 800)


def test_segments_that_are_done_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_file, "SEGMENT_SIZE", 4_096)
    log = SpoolFile(tmp_path, size_max=MIB)
    for number in range(100):
        entry = log.put("t", b"%d" % number, b"x" * 500)
        if number < 90:
            log.settle(entry.end)
    assert len(list(tmp_path.glob("*.log"))) <= 4
    log.close()
    assert ids(SpoolFile(tmp_path, size_max=MIB)) == [b"%d" % number for number in range(90, 100)]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    log = SpoolFile(tmp_path, size_max=MIB)
    with pytest.raises(BadConfig, match="in use by another process"):
        SpoolFile(tmp_path, size_max=MIB)
    log.close()
    SpoolFile(tmp_path, size_max=MIB).close()
