"""Moves the data of a member aside: `broker` becomes `broker.aside-20261115-215800`, whole.

Nothing is deleted, ever. The file `member` stays: it is the same member, which then begins with
nothing. What is to be done is written down first (the file `aside`); a start goes on with it. Only
while no store is open on the directory.
"""

from datetime import UTC, datetime
from pathlib import Path

from ternmq.storage.files.disk import Disk

INTENT = "aside"
STAYS = ("member", "reserve", INTENT)


def asides(disk: Disk, home: Path) -> list[str]:
    """Names of what was moved aside and is still there; blocks."""
    return [name for name in disk.names(home.parent) if name.startswith(f"{home.name}.aside-")]


def move_aside(disk: Disk, home: Path, now_ms: int) -> Path:
    """Leave `home` empty; returns where its data is, itself where there is none. Blocks,
    durable."""
    disk.mkdir(home)  # All of it may have been removed.
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{home.name}.aside-{moment}"
    if all(each in STAYS for each in disk.names(home)):
        return home
    while disk.exists(home.parent / name):
        name += "+"
    disk.write_atomic(home / INTENT, name.encode())
    finish_aside(disk, home)
    return home.parent / name


def finish_aside(disk: Disk, home: Path) -> bool:
    """Do, or do again, what the file `aside` says; blocks. False: there is none."""
    if not disk.exists(home / INTENT):
        return False
    target = home.parent / disk.read(home / INTENT).decode()
    disk.mkdir(target)
    for name in disk.names(home):
        if name not in STAYS:
            disk.rename(home / name, target / name)
    disk.sync_dir(target)
    disk.sync_dir(home)
    disk.unlink(home / INTENT)
    disk.sync_dir(home)
    return True
