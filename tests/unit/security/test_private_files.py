"""Files for one account: whole, 0600, never half there."""

import stat
from pathlib import Path

import pytest

from ternmq.security.private_files import make_once, replace_whole, write_new


def test_who_comes_second_takes_what_the_first_one_made(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    make_once(path, b"first")
    make_once(path, b"second")

    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_replaced_is_for_one_account_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_whole(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_writes_over_nothing(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new(path, b"new")

    assert path.read_bytes() == b"old"


def test_where_nothing_can_be_written_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(OSError):
        replace_whole(path, b"new")

    assert list(tmp_path.iterdir()) == [path]
