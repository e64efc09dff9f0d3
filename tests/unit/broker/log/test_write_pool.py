"""Logs that are written from locked memory have the same bytes as without it (R26)."""

import os
from pathlib import Path

import pytest

from ternmq.broker.config import BrokerConfig, Flush
from ternmq.broker.log.write_pool import PooledDisk, PooledFile, WritePool
from ternmq.core.errors import BadConfig, DiskFailed
from ternmq.storage.files.disk import IOV_MAX, RealFile, write_all

SIZE = 64 * 1024


def locked_kib() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmLck:")]
    return int(line.split()[1])


def test_what_is_written_is_the_same_in_whatever_pieces_it_comes(tmp_path: Path) -> None:
    disk = PooledDisk(WritePool(SIZE))
    file = disk.open(tmp_path / "0.log", create=True)
    pieces = [os.urandom(size) for size in (1, 0, SIZE - 1, 5, SIZE, 3 * SIZE + 7)]
    pieces += [os.urandom(3) for _ in range(2 * IOV_MAX)]
    wanted = b"".join(pieces)

    assert write_all(file, [memoryview(piece) for piece in pieces], 10) == 10 + len(wanted)
    assert file.pread(len(wanted), 10) == wanted
    assert file.pwritev([], 0) == 0


def test_the_memory_is_locked_and_only_logs_use_it(tmp_path: Path) -> None:
    before = locked_kib()
    disk = PooledDisk(WritePool(SIZE))

    assert locked_kib() - before == SIZE // 1024
    assert isinstance(disk.open(tmp_path / "0.log", create=True), PooledFile)
    assert type(disk.open(tmp_path / "checkpoint", create=True)) is RealFile


def test_a_write_that_fails_is_told_as_without_the_pool(tmp_path: Path) -> None:
    file = PooledDisk(WritePool(SIZE)).open(tmp_path / "0.log", create=True)
    file.close()

    with pytest.raises(DiskFailed, match="while writing"):
        file.pwritev([b"x"], 0)


def test_it_is_for_async_flush_and_refused_where_it_makes_no_sense() -> None:
    assert BrokerConfig(flush=Flush.ASYNC, write_pool=1 << 20).write_pool == 1 << 20
    with pytest.raises(BadConfig, match='for flush = "async"'):
        BrokerConfig(write_pool=1 << 20)
    with pytest.raises(BadConfig, match="at least 1048576"):
        BrokerConfig(flush=Flush.ASYNC, write_pool=4096)
