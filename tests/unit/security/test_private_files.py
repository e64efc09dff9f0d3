"""Files for one account: whole, 0600, never half there."""

import os
import stat
from pathlib import Path

import pytest

from ternmq.security.private_files import make_once, replace_whole, too_open, write_new


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


@pytest.mark.parametrize(
    ("mode", "own", "given"),
    [
        (0o600, False, False),
        (0o400, False, False),
        (0o640, True, False),  # Of a group, as orchestrators mount them.
        (0o440, True, False),
        (0o660, True, True),
        (0o604, True, True),
        (0o644, True, True),
        (0o601, True, True),
    ],
)
def test_one_rule_says_whether_others_may_use_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, own: bool, given: bool
) -> None:
    path = tmp_path / "key"
    path.touch()
    path.chmod(mode)
    with path.open("rb") as file:
        assert too_open(file.fileno()) == (mode if own else 0)
        owner = path.stat().st_uid
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert too_open(file.fileno()) == (mode if given else 0)


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
