"""The simulated disk forgets what a real one may forget, and nothing else."""

from contextlib import suppress
from pathlib import Path

import pytest

from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.testing.disk import PowerCut, SimulatedDisk

HERE = Path("/here")
FILE = HERE / "file"


def ready() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir(HERE)
    return disk


def after_crash(seed: int) -> tuple[bool, bytes]:
    disk = ready()
    file = disk.open(FILE, create=True)
    file.pwritev([b"s" * 2000], 0)
    file.sync()
    disk.sync_dir(HERE)
    file.pwritev([b"u" * 2000], 1000)
    disk.rename(FILE, HERE / "new")
    disk.crash(seed)
    renamed = disk.exists(HERE / "new")
    return renamed, disk.read(HERE / "new" if renamed else FILE)


def test_synced_bytes_stay_and_unsynced_sectors_may_be_lost_in_any_combination() -> None:
    outcomes = {after_crash(seed) for seed in range(200)}
    assert len(outcomes) > 20
    assert {renamed for renamed, _ in outcomes} == {True, False}
    for _, content in outcomes:
        assert content[:1000] == b"s" * 1000
        for start, end in ((1000, 1024), (1024, 1536), (1536, 2000)):
            assert len(set(content[start:end])) == 1, "a sector is written whole or not"


def test_the_same_seed_gives_the_same_crash() -> None:
    assert after_crash(5) == after_crash(5)


def test_a_name_is_durable_only_when_its_directory_was_synced() -> None:
    def exists(seed: int, *, synced: bool) -> bool:
        disk = ready()
        disk.open(FILE, create=True).sync()
        if synced:
            disk.sync_dir(HERE)
        disk.crash(seed)
        return disk.exists(FILE)

    assert {exists(seed, synced=False) for seed in range(20)} == {True, False}
    assert {exists(seed, synced=True) for seed in range(20)} == {True}


def test_a_replaced_file_is_old_or_new_after_a_crash_at_any_moment() -> None:
    seen = set()
    for nth in range(1, 8):
        for seed in range(10):
            disk = ready()
            disk.write_atomic(FILE, b"old")
            disk.faults.cut_power(nth)
            with suppress(PowerCut):
                disk.write_atomic(FILE, b"new")
            disk.crash(seed)
            seen.add(disk.read(FILE))
    assert seen == {b"old", b"new"}


def test_a_failed_sync_forgets_the_pages_and_still_shows_them() -> None:
    disk = ready()
    file = disk.open(FILE, create=True)
    disk.sync_dir(HERE)
    file.pwritev([b"x"], 0)
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        file.sync()
    assert disk.read(FILE) == b"x"
    file.sync()
    disk.crash(seed=0)
    assert disk.read(FILE) == b""


def test_writes_fail_and_stop_short_when_told_to() -> None:
    disk = ready()
    file = disk.open(FILE, create=True)
    disk.faults.fail_write(2, "short")
    disk.faults.fail_write(3, "full")
    disk.faults.fail_write(4, "failed")
    assert file.pwritev([b"abc", b"d"], 0) == 4
    assert file.pwritev([b"efgh"], 4) == 2
    with pytest.raises(DiskFull):
        file.pwritev([b"x"], 6)
    with pytest.raises(DiskFailed):
        file.pwritev([b"x"], 6)
    disk.free_size = 3
    assert file.pwritev([b"12345"], 6) == 3
    with pytest.raises(DiskFull):
        file.pwritev([b"45"], 9)
