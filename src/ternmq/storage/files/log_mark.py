"""The mark of a log: how much of it was on this disk, in a file that lies apart from the log.

A log that is shorter than its mark has lost bytes that were safe; one that ends at the mark, or
beyond it with a record that is not whole, was torn by a crash. Without the mark the two look alike
where the last checkpoint is older. It also says how much of the log was acknowledged, so that a
member knows what it must not cut off.

It is written over in place after every sync of the log and not synced itself: the operating system
keeps it when the process dies, so after a kill it is exact. A power cut may leave an older one,
never one that says too much: it is raised after the log was synced, and lowered, durably, before
the log is cut. `settle` syncs it now and then, beside the writer. Losing it costs the proof and
nothing else. Little-endian, one sector.

    at  size  field
     0     4  magic     b"MARK"
     4     4  crc       CRC-32C of bytes 8..
     8     8  version   1
    16     8  synced    the log was on disk up to here
    24     8  safe      it was acknowledged up to here; never above `synced`
"""

import struct
from contextlib import suppress
from pathlib import Path

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull
from ternmq.core.log import get_logger
from ternmq.storage.files.disk import Disk, File, write_all
from ternmq.storage.files.whole_file import pack_whole, read_whole

MARK_SUFFIX = ".mark"
MAGIC = b"MARK"
VERSION = 1
FIELDS = struct.Struct("<QQQ")

log = get_logger()


class LogMark:
    """The mark of one log; raised by the log's writer, settled by anybody."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._path = path
        self._file: File | None = None
        self._settled = True
        self.synced = self.safe = 0
        try:
            self._file = disk.open(path, create=True)
            found = self._file.pread(4096, 0)
            if found:
                self.synced, self.safe = decode(found, path)
        except (Corrupt, DiskFailed, DiskFull) as error:
            log.warning("the mark of a log is not known", path=str(path), error=error.message)

    def note(self, synced: int, safe: int) -> None:
        """So much is on disk, so much of it is acknowledged; does not wait for the disk."""
        safe = min(safe, synced)
        if self._file is None or (synced <= self.synced and safe <= self.safe):
            return
        self.synced, self.safe = max(synced, self.synced), max(safe, self.safe)
        with suppress(DiskFull, DiskFailed):  # The one before says less, which is true as well.
            self._write(self._file)
            self._settled = False

    def lower(self, to: int) -> None:
        """The log is about to end here; durable when this returns."""
        self.synced, self.safe = min(self.synced, to), min(self.safe, to)
        if self._file is not None and self._file.size:
            self._write(self._file)
            self._file.sync()

    def settle(self) -> None:
        """Let it survive a power cut, too; blocks. Any thread."""
        if self._file is not None and not self._settled:
            self._settled = True
            with suppress(DiskFull, DiskFailed):
                self._file.sync()

    def _write(self, file: File) -> None:
        write_all(file, [pack_whole(MAGIC, FIELDS.pack(VERSION, self.synced, self.safe))], 0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def decode(content: bytes, path: Path) -> tuple[int, int]:
    """(synced, safe). Raises `Corrupt`."""
    body = read_whole(content, MAGIC, str(path), body_min=FIELDS.size)
    version, synced, safe = FIELDS.unpack_from(body)
    if version != VERSION:
        raise Corrupt(f"{path} has version {version}, this is version {VERSION}")
    return synced, safe
