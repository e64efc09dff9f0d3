"""Small files are replaced on a full disk, by the room that is kept for them."""

from pathlib import Path

import pytest

from ternmq.core.errors import DiskFull
from ternmq.storage.files.disk import Buffer, RealDisk, write_atomic
from ternmq.storage.files.reserve import NAME, SIZE, ReservedDisk


class SmallDisk(RealDisk):
    """Takes so many bytes in small files; the reserve counts."""

    def __init__(self, home: Path, size: int) -> None:
        self.home = home
        self.size = size

    def write_atomic(self, path: Path, content: Buffer) -> None:
        used = sum(each.stat().st_size for each in self.home.iterdir() if each != path)
        if used + len(content) > self.size:
            raise DiskFull("no space left")
        write_atomic(self, path, content)


def test_a_full_disk_still_takes_small_files_and_the_reserve_comes_back(tmp_path: Path) -> None:
    inner = SmallDisk(tmp_path, 2 * SIZE)
    disk = ReservedDisk(inner, tmp_path)
    disk.write_atomic(tmp_path / "member", b"1")
    assert (tmp_path / NAME).stat().st_size == SIZE

    inner.size = SIZE
    for epoch in range(3):
        disk.write_atomic(tmp_path / "member", b"%d" % epoch)
        assert disk.read(tmp_path / "member") == b"%d" % epoch
        assert (tmp_path / NAME).exists()


def test_what_does_not_fit_into_the_reserve_is_refused_as_before(tmp_path: Path) -> None:
    inner = SmallDisk(tmp_path, 2 * SIZE)
    disk = ReservedDisk(inner, tmp_path)
    disk.write_atomic(tmp_path / "member", b"1")

    with pytest.raises(DiskFull):
        disk.write_atomic(tmp_path / "large", bytes(3 * SIZE))
    assert (tmp_path / NAME).exists()


def test_a_home_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    disk = ReservedDisk(RealDisk(), tmp_path / "broker")
    disk.write_atomic(tmp_path / "elsewhere", b"1")

    assert not (tmp_path / "broker").exists()
