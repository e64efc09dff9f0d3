"""Data that is moved aside: all of it or none, whatever happens meanwhile, and never deleted."""

from pathlib import Path

import pytest

from ternmq.storage.files.disk import RealDisk
from ternmq.storage.files.member import MemberFile
from ternmq.storage.files.set_aside import asides, finish_aside, move_aside
from ternmq.testing.disk import PowerCut, SimulatedDisk

HOME = Path("/data/broker")
AT_MS = 1_700_000_000_000
FILES = ("checkpoint", "message/00000000000000000000.log", "pull/00000000000000000000.log")


def filled() -> SimulatedDisk:
    disk = SimulatedDisk()
    MemberFile.open(disk, HOME)
    for name in FILES:
        disk.mkdir((HOME / name).parent)
        disk.write_atomic(HOME / name, name.encode())
    return disk


def test_everything_but_the_member_file_is_moved() -> None:
    disk = filled()
    before = MemberFile.open(disk, HOME).id
    place = move_aside(disk, HOME, AT_MS)

    assert place == Path("/data/broker.aside-20231114-221320")
    assert [disk.read(place / name) for name in FILES] == [name.encode() for name in FILES]
    assert disk.names(HOME) == ["member"]
    assert MemberFile.open(disk, HOME).id == before
    assert asides(disk, HOME) == [place.name]
    disk.write_atomic(HOME / "checkpoint", b"of the second life")
    assert move_aside(disk, HOME, AT_MS).name == place.name + "+"


def test_a_crash_at_any_step_leaves_all_of_it_in_one_place_after_the_next_start() -> None:
    for step in range(1, 40):
        disk = filled()
        disk.faults.cut_power(step)
        try:
            move_aside(disk, HOME, AT_MS)
        except PowerCut:
            disk.crash(step)
            begun = disk.exists(HOME / "aside")
            assert finish_aside(disk, HOME) is begun
        else:
            return
        places = [HOME] if not asides(disk, HOME) else [HOME.parent / asides(disk, HOME)[0]]
        if not all(disk.exists(places[0] / name) for name in FILES):
            places = [HOME]
        assert [disk.read(places[0] / name) for name in FILES] == [n.encode() for n in FILES]
        assert disk.exists(HOME / "member")
    pytest.fail("it never came to an end")


def test_a_real_directory_is_moved_with_its_folders(tmp_path: Path) -> None:
    home, disk = tmp_path / "broker", RealDisk()
    MemberFile.open(disk, home)
    (home / "message").mkdir()
    (home / "message" / "log").write_text("bytes")
    place = move_aside(disk, home, AT_MS)

    assert (place / "message" / "log").read_text() == "bytes"
    assert [path.name for path in home.iterdir()] == ["member"]
    assert asides(disk, home) == [place.name]
