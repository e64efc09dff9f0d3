"""One node per data directory."""

import os
from pathlib import Path

import pytest

from ternmq.cli.processes.lock import LOCK_NAME, locked
from ternmq.core.errors import BadConfig


def test_a_second_owner_is_refused_with_pid_and_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    refused = pytest.raises(BadConfig, match=rf"{data_dir}.*pid {os.getpid()}.*--data-dir")

    with locked(data_dir), refused, locked(data_dir):
        raise AssertionError("two owners")


def test_the_lock_is_free_again_after_the_block(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text(encoding="ascii") == f"{os.getpid()}\n"
    with locked(tmp_path):
        pass


def test_a_directory_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(BadConfig, match="cannot use"), locked(tmp_path / "file" / "data"):
        pass
