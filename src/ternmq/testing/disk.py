"""A disk in memory that forgets what was not synced, tears writes, and fails when told to.

It keeps, per file, what is durable and the writes since the last sync. `crash(seed)` is a power
cut: everything synced stays; of the rest a random subset, each write torn at 512-byte boundaries
so that any of its sectors may be missing; creations, renames and removals are lost, or not, unless
their directory was synced. `restart()` is a killed process: the operating system keeps all.

A sync that fails behaves as Linux does: the pages count as clean afterwards, so they are never
written, though reading still shows them. Deterministic: the same calls and seeds give the same
bytes. Raises the same errors as the real disk.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.storage.files.disk import Buffer, write_atomic

SECTOR_SIZE = 512
TOTAL_SIZE = 2**40

_Change = tuple[int, bytes | None]
"""(offset, bytes) for a write, (size, None) for a truncation."""


class _Inode:
    """One file: its name may change, it does not."""

    __slots__ = ("content", "durable", "unsynced")

    def __init__(self, durable: bytes = b"") -> None:
        self.content = bytearray(durable)
        self.durable = bytearray(durable)
        self.unsynced: list[_Change] = []

    def change(self, change: _Change) -> None:
        _apply(self.content, change)
        self.unsynced.append(change)

    def settle(self) -> None:
        for change in self.unsynced:
            _apply(self.durable, change)
        self.unsynced.clear()

    def crash(self, random: Random) -> None:
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        for change in self.unsynced:
            for part in _sectors(change):
                if random.random() < keep:
                    _apply(self.durable, part)
        self.unsynced.clear()
        self.content = bytearray(self.durable)


def _folder(path: Path) -> str:
    """The directory of a path; `Path.parent` is ten times slower, and this is asked very often."""
    return str(path).rpartition("/")[0]


def _apply(content: bytearray, change: _Change) -> None:
    at, data = change
    if data is None:
        if at < len(content):
            del content[at:]
        else:
            content.extend(bytes(at - len(content)))
        return
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


def _sectors(change: _Change) -> Iterator[_Change]:
    at, data = change
    if data is None:
        yield change
        return
    low = 0
    while low < len(data):
        high = min(len(data), low + SECTOR_SIZE - (at + low) % SECTOR_SIZE)
        yield at + low, data[low:high]
        low = high


class PowerCut(BaseException):
    """The machine stops in the middle of a call; the test goes on with `crash`."""


class Faults:
    """What will go wrong: counts are from the moment of asking, 1 is the very next call."""

    def __init__(self) -> None:
        self._writes: dict[int, str] = {}
        self._syncs: set[int] = set()
        self._power: int | None = None
        self.write_count = 0
        self.sync_count = 0
        self.change_count = 0

    def fail_write(self, nth: int, how: str) -> None:
        """`how`: "full" (no space), "failed" (I/O error), "short" (half of it goes in)."""
        assert how in ("full", "failed", "short")
        self._writes[self.write_count + nth] = how

    def fail_sync(self, nth: int) -> None:
        self._syncs.add(self.sync_count + nth)

    def cut_power(self, nth: int) -> None:
        """Raise `PowerCut` instead of the nth change of any kind."""
        self._power = self.change_count + nth

    def next_change(self) -> None:
        """Every write, sync, truncation, creation, rename and removal passes here."""
        self.change_count += 1
        if self._power is not None and self.change_count >= self._power:
            raise PowerCut

    def next_write(self) -> str | None:
        self.next_change()
        self.write_count += 1
        return self._writes.pop(self.write_count, None)

    def next_sync(self) -> bool:
        self.next_change()
        self.sync_count += 1
        if self.sync_count in self._syncs:
            self._syncs.remove(self.sync_count)
            return True
        return False

    def next_read(self) -> bool:
        """Does this read of a part of a file fail?"""
        return False

    def clear(self) -> None:
        self._writes.clear()
        self._syncs.clear()
        self._power = None


class SimulatedFile:
    """An open file of a `SimulatedDisk`."""

    def __init__(self, disk: "SimulatedDisk", path: Path, inode: _Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = disk.life

    def _alive(self) -> _Inode:
        if self._life != self._disk.life:
            raise DiskFailed(f"{self._path} was opened before the crash")
        return self._inode

    @property
    def size(self) -> int:
        return len(self._alive().content)

    @property
    def gone(self) -> bool:
        return not self._disk.holds(self._path, self._alive())

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        inode = self._alive()
        data = b"".join(buffers)
        fault = self._disk.faults.next_write()
        grown = max(0, offset + len(data) - len(inode.content))
        if fault == "failed":
            raise DiskFailed(f"simulated I/O error while writing {self._path}")
        if fault == "full" or grown > self._disk.free_size:
            fits = len(data) // 3 if fault == "full" else max(0, self._disk.free_size)
            fits = min(fits, len(data))
            if fits == 0 or fault == "full":
                inode.change((offset, data[:fits]))
                raise DiskFull(f"simulated full disk while writing {self._path}")
            data = data[:fits]
        elif fault == "short":
            data = data[: max(1, len(data) // 2)]
        self._disk.free_size -= max(0, offset + len(data) - len(inode.content))
        inode.change((offset, data))
        return len(data)

    def pread(self, size: int, offset: int) -> bytes:
        if self._disk.faults.next_read():
            raise DiskFailed(f"simulated I/O error while reading {self._path}")
        return bytes(self._alive().content[offset : offset + size])

    def pread_nowait(self, size: int, offset: int) -> bytearray | None:
        if not self._disk.cached:
            return None
        data = self._alive().content[offset : offset + size]
        return data if len(data) == size else None

    def sync(self) -> None:
        inode = self._alive()
        if self._disk.faults.next_sync():
            inode.unsynced.clear()
            raise DiskFailed(f"simulated I/O error while syncing {self._path}")
        inode.settle()

    def truncate(self, size: int) -> None:
        inode = self._alive()
        self._disk.faults.next_change()
        self._disk.free_size += max(0, len(inode.content) - size)
        inode.change((size, None))

    def extend(self, size: int) -> None:
        inode = self._alive()
        grown = size - len(inode.content)
        if grown > self._disk.free_size:
            raise DiskFull(f"simulated full disk while making room in {self._path}")
        if grown > 0:
            self.truncate(size)
            self._disk.free_size -= grown

    def close(self) -> None:
        """Nothing to do: memory."""


class SimulatedDisk:
    """A `Disk` for tests."""

    def __init__(self, *, room: int = 0) -> None:
        self.faults = Faults()
        self.free_size = 2**39
        self.room = room
        """How much longer than it has to be the file of a message log is made."""
        self.cached = True
        """Whether reads without waiting find their bytes."""
        self.life = 0
        self._files: dict[Path, _Inode] = {}
        self._durable: dict[Path, _Inode] = {}
        self._moves: list[tuple[Path, Path | None, _Inode]] = []  # Not yet synced.
        self._directories: set[Path] = set()

    # The interface of `Disk`

    def open(self, path: Path, *, create: bool) -> SimulatedFile:
        inode = self._files.get(path)
        if inode is None:
            if not create:
                raise DiskFailed(f"no such file: {path}")
            if path.parent not in self._directories:
                raise DiskFailed(f"no such directory: {path.parent}")
            self.faults.next_change()
            inode = self._files[path] = _Inode()
            self._moves.append((path, path, inode))
        return SimulatedFile(self, path, inode)

    def names(self, directory: Path) -> list[str]:
        if directory not in self._directories:
            raise DiskFailed(f"no such directory: {directory}")
        folder = str(directory)
        files = {path.name for path in self._files if _folder(path) == folder}
        return sorted(files | {path.name for path in self._directories if path.parent == directory})

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._directories

    def holds(self, path: Path, inode: _Inode) -> bool:
        return self._files.get(path) is inode

    def mkdir(self, path: Path) -> None:
        self._directories |= {path, *path.parents}

    def rename(self, source: Path, target: Path) -> None:
        if source in self._directories:
            self._rename_directory(source, target)
            return
        if source not in self._files:
            raise DiskFailed(f"no such file: {source}")
        self.faults.next_change()
        inode = self._files[target] = self._files.pop(source)
        self._moves.append((source, target, inode))

    def _rename_directory(self, source: Path, target: Path) -> None:
        """At once, with all that is in it."""
        self.faults.next_change()
        for held in (self._files, self._durable):
            for path in [path for path in held if source in path.parents]:
                held[target / path.relative_to(source)] = held.pop(path)
        moved = [path for path in self._directories if path == source or source in path.parents]
        self._directories = self._directories.difference(moved) | {
            target / path.relative_to(source) for path in moved
        }

    def unlink(self, path: Path) -> None:
        self.faults.next_change()
        inode = self._files.pop(path, None)
        if inode is not None:
            self.free_size += len(inode.content)
            self._moves.append((path, None, inode))

    def sync_dir(self, directory: Path) -> None:
        if self.faults.next_sync():
            raise DiskFailed(f"simulated I/O error while syncing {directory}")
        folder = str(directory)
        for path in [path for path in self._durable if _folder(path) == folder]:
            del self._durable[path]
        for path, inode in self._files.items():
            if _folder(path) == folder:
                self._durable[path] = inode
        moves, self._moves = self._moves, []
        for path, target, inode in moves:
            away = _folder(path) == folder
            there = target is None or _folder(target) == folder
            if away and not there:  # From one folder to another: each counts for itself.
                assert target is not None
                self._moves.append((target, target, inode))
            elif not away:
                self._moves.append((path, None if there else target, inode))

    def write_atomic(self, path: Path, content: Buffer) -> None:
        write_atomic(self, path, content)

    def read(self, path: Path) -> bytes:
        if path not in self._files:
            raise DiskFailed(f"no such file: {path}")
        return bytes(self._files[path].content)

    def free(self, path: Path) -> tuple[int, int]:
        return self.free_size, TOTAL_SIZE

    # What tests do to it

    def crash(self, seed: int) -> None:
        """A power cut. Files opened before it must not be used any more."""
        random = Random(seed)
        self._crash_names(random)
        inodes: dict[int, _Inode] = {id(inode): inode for inode in self._files.values()}
        for inode in inodes.values():
            inode.crash(random)
        self.restart()

    def _crash_names(self, random: Random) -> None:
        names = dict(self._durable)
        for path, target, inode in self._moves:
            if random.random() < 0.5:
                continue
            names.pop(path, None)
            if target is not None:
                names[target] = inode
        self._files = names
        self._durable = dict(names)
        self._moves.clear()

    def restart(self) -> None:
        """The process was killed: nothing is lost, faults are over."""
        self.life += 1
        self.faults.clear()

    def inodes(self) -> dict[Path, int]:
        """All files, and by a number which each is: one that was replaced has another."""
        return {path: id(inode) for path, inode in self._files.items()}

    def flip(self, path: Path, offset: int, bit: int = 0) -> None:
        """Turn one bit over, durably."""
        inode = self._files[path]
        inode.settle()
        for content in (inode.content, inode.durable):
            content[offset] ^= 1 << bit

    def cut(self, path: Path, size: int) -> None:
        """Make a file shorter, durably, behind everybody's back."""
        inode = self._files[path]
        inode.settle()
        for content in (inode.content, inode.durable):
            del content[size:]

    def remove(self, path: Path) -> None:
        """Remove a file, durably."""
        self._files.pop(path, None)
        self._durable.pop(path, None)

    def remove_tree(self, directory: Path) -> None:
        """Remove a directory and all that is in it, durably."""
        for path in [path for path in self._files if directory in path.parents]:
            self.remove(path)
        gone = {
            path for path in self._directories if path == directory or directory in path.parents
        }
        self._directories -= gone
        self._moves = [move for move in self._moves if directory not in move[0].parents]

    def place(self, path: Path, content: bytes) -> None:
        """Put a file there, durably."""
        self.mkdir(path.parent)
        self._files[path] = self._durable[path] = _Inode(content)
