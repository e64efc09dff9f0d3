"""One file per hour, few of them open, and what a bad disk does to them (Q7, R7)."""

from pathlib import Path

import numpy as np
import pytest

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull
from ternmq.delay.formats.decision import Decision, DecisionKind, DispatchFormat, encode
from ternmq.delay.formats.paths import hour_name
from ternmq.delay.store.hour_files import HourFiles
from ternmq.storage.files.paths import Paths
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.testing.disk import SimulatedDisk

DIRECTORY = Path("/d/dispatch")


def a_log(disk: SimulatedDisk) -> HourFiles:
    for path in (DIRECTORY, Path("/d/quarantine")):
        disk.mkdir(path)
    return HourFiles(disk, DIRECTORY)


def record(log: HourFiles, hour: int, row: int) -> bytes:
    decision = Decision(kind=DecisionKind.CANCELLED, at_ms=1, rows=np.array([row], np.uint32))
    return encode(decision, offset=log.ends.get(hour, 0), durable_to=log.synced.get(hour, 0))


def recovered(disk: SimulatedDisk, hour: int) -> tuple[HourFiles, RecoveryReport]:
    log, report = HourFiles(disk, DIRECTORY), RecoveryReport()
    log.recover(
        hour,
        start=0,
        durable=0,
        form=DispatchFormat(),
        visit=lambda *_: None,
        story=(Paths(Path("/d")), report),
    )
    return log, report


def test_two_years_of_hours_need_few_open_files() -> None:
    """17,568 hours with messages in all of them."""
    log = a_log(SimulatedDisk())

    for hour in range(17_568):
        log.append(hour, [b"8 bytes."])
        assert log.files_open <= 64

    assert len(log.found()) == 17_568
    assert log.read(5, 0, 8) == b"8 bytes."
    assert log.files_open <= 64


@pytest.mark.parametrize("how", ["full", "failed", "short"])
def test_a_failed_write_leaves_nothing_behind(how: str) -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    log.append(1, [b"first..."])
    disk.faults.fail_write(1, how)

    if how == "short":  # Continued by itself.
        log.append(1, [b"second.."])
    else:
        with pytest.raises((DiskFull, DiskFailed)):
            log.append(1, [b"second.."])
        assert log.ends[1] == 8
        log.append(1, [b"second.."])

    assert log.read(1, 0, 16) == b"first...second.."
    with pytest.raises(Corrupt):
        log.read(1, 0, 24)


def test_a_failed_sync_is_final() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    log.append(1, [b"8 bytes."])
    disk.faults.fail_sync(2)  # The directory first.

    with pytest.raises(DiskFailed):
        log.sync(1)

    assert log.failed is not None
    with pytest.raises(DiskFailed):
        log.append(2, [b"8 bytes."])


def test_a_file_that_was_removed_behind_its_back_is_never_called_synced() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    log.append(1, [b"8 bytes."])
    log.sync(1)
    log.append(1, [b"8 bytes."])
    disk.remove(log.directory / hour_name(1))

    with pytest.raises(DiskFailed, match="was removed"):
        log.sync(1)

    assert log.failed is not None
    assert log.synced[1] == 8


def test_a_torn_tail_is_cut_and_what_was_safe_is_kept() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    log.append(1, [record(log, 1, 0)])
    log.sync(1)
    good = log.ends[1]
    torn = record(log, 1, 1)
    log.append(1, [torn[:40]])

    log, report = recovered(disk, 1)

    assert log.ends[1] == good
    assert report.sound
    assert len(report.cuts) == 1


def test_damage_in_what_was_safe_is_kept_and_told() -> None:
    disk = SimulatedDisk()
    log = a_log(disk)
    for row in range(3):
        log.append(1, [record(log, 1, row)])
        log.sync(1)
    end = log.ends[1]
    disk.flip(DIRECTORY / hour_name(1), 50)

    log, report = recovered(disk, 1)

    assert log.ends[1] == end
    assert len(report.holes) == 1
