"""The file `reserve`: some room that is kept for the small files without which no server begins.

A disk that is full to the last byte takes no new epoch, no record of the group and no marker, and a
server that starts there would end at once, although everything that it holds could be read and
consumed. So every home has a file that is of no use but its size. When a small file cannot be
replaced for want of room the reserve goes, the file is written, and as much of the reserve as fits
is made again at once: replacing a file frees what the old one had, so little of it is ever used up.

Logs never get any of it.
"""

import threading
from pathlib import Path

from ternmq.core.errors import DiskFull, TernError
from ternmq.core.units import KIB
from ternmq.storage.files.disk import Buffer, Disk, File, write_all

NAME = "reserve"
SIZE = 256 * KIB
SIZE_MIN = 16 * KIB


class ReservedDisk:
    """A `Disk` whose files below one home are replaced also when it is full. Any thread."""

    def __init__(self, disk: Disk, home: Path) -> None:
        self._disk = disk
        self._path = home / NAME
        self._lock = threading.Lock()
        self._whole = False

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
                if not self._disk.exists(self._path):
                    raise
                self._whole = False
                self._disk.unlink(self._path)
                try:
                    self._disk.write_atomic(path, content)
                finally:
                    self._keep()
                return
            if not self._whole:
                self._keep()

    def _keep(self) -> None:
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
            self._whole = True
        finally:
            file.close()
