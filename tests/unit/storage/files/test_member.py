"""The member file: one id for ever, and no way back to an older epoch."""

from pathlib import Path

import pytest

from ternmq.core.errors import Corrupt, DiskFailed
from ternmq.storage.files.member import MemberFile
from ternmq.testing.disk import PowerCut, SimulatedDisk

DATA = Path("/data")


def test_a_directory_is_one_member_for_ever() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    disk.crash(1)
    assert MemberFile.open(disk, DATA).id == member.id
    assert len(bytes.fromhex(member.id)) == 8
    assert MemberFile.open(SimulatedDisk(), DATA).id != member.id


def test_an_older_epoch_is_never_accepted_again_through_restarts() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    assert member.accept(4)
    assert member.accept(4)
    assert member.accept(6)
    disk.crash(1)
    member = MemberFile.open(disk, DATA)
    assert not member.accept(5)
    assert (member.accept(6), member.accepted_epoch) == (True, 6)


def test_an_epoch_counts_only_once_it_is_on_disk() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        member.accept(3)
    assert member.accepted_epoch == 0
    disk.faults.cut_power(2)
    with pytest.raises(PowerCut):
        member.accept(3)
    disk.crash(1)
    assert MemberFile.open(disk, DATA).accepted_epoch in (0, 3)


def test_how_the_group_stood_is_there_after_a_crash_once_it_was_noted() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    assert member.record == b""
    member.note(b"alone")
    assert member.accept(3, b"in company")
    disk.crash(1)
    member = MemberFile.open(disk, DATA)
    assert (member.accepted_epoch, member.record) == (3, b"in company")
    assert not member.accept(2, b"of old") and member.record == b"in company"
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        member.note(b"later")
    assert member.record == b"in company", "not known to be on disk"


def test_that_its_data_is_damaged_is_there_after_a_crash_until_it_is_taken_back() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    assert member.accept(3, b"in company") and not member.damaged
    disk.faults.fail_sync(1)
    with pytest.raises(DiskFailed):
        member.note_damaged(True)
    assert not member.damaged, "not known to be on disk"
    member.note_damaged(True)
    disk.crash(1)
    member = MemberFile.open(disk, DATA)
    assert member.accept(4) and member.damaged
    member.note_damaged(False)
    disk.crash(1)
    after = MemberFile.open(disk, DATA)
    assert (after.id, after.accepted_epoch, after.damaged) == (member.id, 4, False)
    assert after.record == b"in company"


def test_a_damaged_member_file_is_not_guessed_at() -> None:
    disk = SimulatedDisk()
    MemberFile.open(disk, DATA)
    disk.flip(DATA / "member", 17)
    with pytest.raises(Corrupt, match="move its data directory aside"):
        MemberFile.open(disk, DATA)


def test_a_member_whose_folder_was_removed_is_still_that_member() -> None:
    disk = SimulatedDisk()
    member = MemberFile.open(disk, DATA)
    assert member.accept(3, b"in company")
    disk.remove_tree(DATA)
    with pytest.raises(DiskFailed):
        member.accept(4)  # It does not lead with nothing.
    member.note_damaged(True)
    disk.crash(1)
    after = MemberFile.open(disk, DATA)
    assert (after.id, after.accepted_epoch, after.damaged) == (member.id, 3, True)
