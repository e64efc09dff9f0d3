"""The spool's file: nothing that was accepted is lost, also by a torn write (D6)."""

from pathlib import Path

import pytest

from ternmq.client import spool_log
from ternmq.client.spool_log import SpoolLog
from ternmq.core.errors import BadConfig, BufferFull, Corrupt
from ternmq.core.units import MIB


def ids(log: SpoolLog) -> list[bytes]:
    return [entry.id for entry in log.recover()]


def test_what_was_accepted_is_there_again(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path / "s", size_max=MIB)
    entries = [log.put("t", b"%d" % number, b"body") for number in range(5)]
    log.give(entries[1].offset, entries[2].end, "b")
    log.settle(entries[0].end)
    log.close()

    again = SpoolLog(tmp_path / "s", size_max=MIB)
    found = again.recover()
    assert [entry.id for entry in found] == [b"1", b"2", b"3", b"4"]
    assert [entry.broker_group for entry in found] == ["b", "b", None, None]
    assert (found[0].topic, found[0].content) == ("t", b"body")
    again.settle(found[-1].end)
    again.close()
    assert ids(SpoolLog(tmp_path / "s", size_max=MIB)) == []


@pytest.mark.parametrize("missing", range(1, 40))
def test_a_torn_tail_is_cut(tmp_path: Path, missing: int) -> None:
    """Every length a crash can leave of the last record."""
    log = SpoolLog(tmp_path, size_max=MIB)
    log.put("t", b"first", b"whole")
    last = log.put("t", b"last", b"x" * 30)
    log.close()
    (file,) = tmp_path.glob("*.log")
    with file.open("r+b") as opened:
        opened.truncate(last.end - missing)

    again = SpoolLog(tmp_path, size_max=MIB)
    assert ids(again) == [b"first"]
    again.put("t", b"next", b"")
    again.close()
    assert ids(SpoolLog(tmp_path, size_max=MIB)) == [b"first", b"next"]


def test_damage_before_whole_records_is_reported_and_nothing_deleted(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path, size_max=MIB)
    entry = log.put("t", b"first", b"hurt")
    log.put("t", b"last", b"whole")
    log.close()
    (file,) = tmp_path.glob("*.log")
    with file.open("r+b") as opened:
        opened.seek(entry.end - 1)
        opened.write(b"\xff")
    before = file.read_bytes()

    with pytest.raises(Corrupt, match="move the directory away"):
        SpoolLog(tmp_path, size_max=MIB).recover()
    assert file.read_bytes() == before


def test_a_full_spool_refuses_and_has_room_again(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path, size_max=1_000)
    first = log.put("t", b"1", b"x" * 800)
    with pytest.raises(BufferFull, match="raise spool_size_max"):
        log.put("t", b"2", b"x" * 800)
    log.settle(first.end)
    log.put("t", b"2", b"x" * 800)


def test_segments_that_are_done_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_log, "SEGMENT_SIZE", 4_096)
    log = SpoolLog(tmp_path, size_max=MIB)
    for number in range(100):
        entry = log.put("t", b"%d" % number, b"x" * 500)
        if number < 90:
            log.settle(entry.end)
    assert len(list(tmp_path.glob("*.log"))) <= 4
    log.close()
    assert ids(SpoolLog(tmp_path, size_max=MIB)) == [b"%d" % number for number in range(90, 100)]


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    log = SpoolLog(tmp_path, size_max=MIB)
    with pytest.raises(BadConfig, match="in use by another process"):
        SpoolLog(tmp_path, size_max=MIB)
    log.close()
    SpoolLog(tmp_path, size_max=MIB).close()
