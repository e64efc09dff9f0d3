"""The real disk: verbs and the translation of errors."""

import os
from pathlib import Path

import pytest

from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.storage.files.disk import IOV_MAX, RealDisk, write_all


def test_many_buffers_are_written_in_order(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    buffers = [b"%07d" % number for number in range(3 * IOV_MAX + 5)]
    end = write_all(file, buffers, 10)
    file.sync()
    assert end == 10 + 7 * len(buffers) == file.size
    assert file.pread(end - 10, 10) == b"".join(buffers)
    assert file.pread(100, end - 5) == b"".join(buffers)[-5:]
    file.truncate(10)
    assert file.size == 10


def test_reading_without_waiting_finds_what_was_just_written(tmp_path: Path) -> None:
    file = RealDisk().open(tmp_path / "f", create=True)
    write_all(file, [b"hello"], 0)
    assert file.pread_nowait(5, 0) == bytearray(b"hello")
    assert file.pread_nowait(6, 0) is None


def test_a_full_disk_has_its_own_error() -> None:
    file = RealDisk().open(Path("/dev/full"), create=False)
    with pytest.raises(DiskFull, match="/dev/full"):
        file.pwritev([b"x"], 0)


def test_every_other_error_is_a_failed_disk(tmp_path: Path) -> None:
    disk = RealDisk()
    for attempt in (
        lambda: disk.open(tmp_path / "none", create=False),
        lambda: disk.open(tmp_path / "no" / "where", create=True),
        lambda: disk.read(tmp_path / "none"),
        lambda: disk.names(tmp_path / "none"),
        lambda: disk.rename(tmp_path / "none", tmp_path / "other"),
        lambda: disk.sync_dir(tmp_path / "none"),
    ):
        with pytest.raises(DiskFailed, match=str(tmp_path)):
            attempt()


def test_replacing_a_file_leaves_no_trace_of_the_way(tmp_path: Path) -> None:
    disk = RealDisk()
    for content in (b"first and longer", b"second"):
        disk.write_atomic(tmp_path / "f", content)
        assert disk.read(tmp_path / "f") == content
    assert disk.names(tmp_path) == ["f"]
    disk.unlink(tmp_path / "f")
    disk.unlink(tmp_path / "f")
    assert not disk.exists(tmp_path / "f")


def test_free_space_is_told_with_the_total(tmp_path: Path) -> None:
    free, total = RealDisk().free(tmp_path)
    assert 0 < free < total


def test_an_open_file_knows_that_its_name_is_gone_or_is_anothers(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "f"
    file = disk.open(path, create=True)
    assert not file.gone
    path.rename(tmp_path / "moved")
    assert file.gone
    path.write_bytes(b"another")
    assert file.gone
    (tmp_path / "moved").replace(path)
    assert not file.gone
    path.unlink()
    assert file.gone


def test_the_name_of_an_open_file_is_looked_at_without_asking_for_its_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks a kernel for the time of a change makes the next sync write one down (0032)."""
    file = RealDisk().open(tmp_path / "f", create=True)
    asked: list[object] = []

    def stat(*arguments: object) -> os.stat_result:
        asked.append(arguments)
        return real(*arguments)  # type: ignore[arg-type]

    real = os.stat
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "fstat", stat)
    assert not any(file.gone for _ in range(100))
    assert len(asked) <= 4  # Two calls at first, and now and then.


def test_free_space_is_known_where_a_folder_is_gone(tmp_path: Path) -> None:
    assert RealDisk().free(tmp_path / "no" / "where")[1] == RealDisk().free(tmp_path)[1]
