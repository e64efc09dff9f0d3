"""The file `reserve`: some room that is kept for the small files without which no server begins.

A disk that is full to the last byte takes no new epoch, no record of the group and no marker, and a
server that starts there would end at once, although everything that it holds could be read and
consumed. So every home has a file that is of no use but its size. When a small file cannot be
replaced for want of room the reserve goes, the file is written, and as much of the reserve as fits
is made again at once: replacing a file frees what the old one had, so little of it is ever used up.

Logs never get any of it. A registry in SQLite has such a file of its own.
"""

import threading
from pathlib import Path

from ternmq.core.errors import DiskFull, TernError
from ternmq.core.units import KIB
from ternmq.storage.files.disk import Buffer, Disk, File, write_all

NAME = "reserve"
SIZE = 256 * KIB
SIZE_MIN = 16 * KIB


class ReserveFile:
    """The file: room that is given up when it is needed, and taken again as far as there is any.
    Used by one thread at a time."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self.whole = False

    def give(self) -> bool:
        """The room is free now; False: there was none."""
        if not self._disk.exists(self._path):
            return False
        self.whole = False
        self._disk.unlink(self._path)
        return True

    def keep(self) -> None:
        """As large as fits; whatever goes wrong here is no harm."""
        try:
            if self._path.parent.is_dir():
                self._fill(self._disk.open(self._path, create=True))
        except TernError:
            return

    def _fill(self, file: File) -> None:
        try:
            size = file.size
            while size < SIZE:
                step = min(SIZE_MIN, SIZE - size)
                size = write_all(file, [bytes(step)], size)
            self.whole = True
        finally:
            file.close()


class ReservedDisk:
    """A `Disk` whose files below one home are replaced also when it is full. Any thread."""

    def __init__(self, disk: Disk, home: Path) -> None:
        self._disk = disk
        self._reserve = ReserveFile(disk, home / NAME)
        self._lock = threading.Lock()

        self.room = disk.room
        self.open = disk.open
        self.names = disk.names
        self.exists = disk.exists
        self.mkdir = disk.mkdir
        self.rename = disk.rename
        self.unlink = disk.unlink
        self.sync_dir = disk.sync_dir
        self.read = disk.read
        self.free = disk.free

    def write_atomic(self, path: Path, content: Buffer) -> None:
        with self._lock:
            try:
                self._disk.write_atomic(path, content)
            except DiskFull:
                if not self._reserve.give():
                    raise
                try:
                    self._disk.write_atomic(path, content)
                finally:
                    self._reserve.keep()
                return
            if not self._reserve.whole:
                self._reserve.keep()
