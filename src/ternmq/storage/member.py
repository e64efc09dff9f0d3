"""Who this data directory is in its broker group: the file `member`.

The id is made once, with the directory, and never changes: an empty directory is a new member. With
it goes the highest epoch that this member has accepted. Whoever has accepted epoch n + 1 never
follows the master of epoch n again, through restarts too: that is what stops an old master.
Replaced as a whole; `accept` returns when it is on disk. Little-endian.

    at  size  field
     0     4  magic           b"MEMB"
     4     4  crc             CRC-32C of bytes 8..32
     8     4  version         1
    12     4  spare           zero
    16     8  id              random
    24     8  accepted_epoch
"""

import secrets
import struct
from pathlib import Path

from crc32c import crc32c

from ternmq.core.errors import Corrupt
from ternmq.storage.disk import Disk

MAGIC = b"MEMB"
VERSION = 1
FRAME = struct.Struct("<4sI")
FIELDS = struct.Struct("<I4x8sQ")
SIZE = 32
ID_SIZE = 8

assert FRAME.size + FIELDS.size == SIZE


class MemberFile:
    """The member's identity on disk. One thread at a time."""

    def __init__(self, disk: Disk, path: Path, *, id: str, accepted_epoch: int) -> None:
        """Use `MemberFile.open`."""
        self._disk = disk
        self._path = path
        self.id = id
        """16 hexadecimal digits."""
        self.accepted_epoch = accepted_epoch

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> "MemberFile":
        """Read the file, or make it where there is none; blocks. Raises `Corrupt`."""
        path = directory / "member"
        disk.mkdir(directory)
        if disk.exists(path):
            id, accepted_epoch = decode(disk.read(path), path)
            return cls(disk, path, id=id, accepted_epoch=accepted_epoch)
        member = cls(disk, path, id=secrets.token_hex(ID_SIZE), accepted_epoch=0)
        member._write()
        return member

    def accept(self, epoch: int) -> bool:
        """Follow or lead at this epoch; False when a later one was accepted before. Blocks."""
        if epoch < self.accepted_epoch:
            return False
        if epoch > self.accepted_epoch:
            before, self.accepted_epoch = self.accepted_epoch, epoch
            try:
                self._write()
            except BaseException:
                self.accepted_epoch = before  # Not known to be on disk: do not act on it.
                raise
        return True

    def _write(self) -> None:
        self._disk.write_atomic(self._path, encode(self.id, self.accepted_epoch))


def encode(id: str, accepted_epoch: int) -> bytes:
    fields = FIELDS.pack(VERSION, bytes.fromhex(id), accepted_epoch)
    return FRAME.pack(MAGIC, crc32c(fields)) + fields


def decode(content: bytes, path: Path) -> tuple[str, int]:
    """(id, accepted epoch). Raises `Corrupt`: a guess could follow a master that is fenced off."""
    magic, crc = FRAME.unpack_from(content) if len(content) == SIZE else (b"", 0)
    if magic != MAGIC or crc != crc32c(content[FRAME.size :]):
        raise Corrupt(
            f"{path} is damaged, so this server does not know which member of its group it is: "
            "move its data directory aside and start again, it comes back as a new member"
        )
    version, id, accepted_epoch = FIELDS.unpack_from(content, FRAME.size)
    if version != VERSION:
        raise Corrupt(
            f"{path} has version {version}, this is version {VERSION}: start that release"
        )
    return id.hex(), accepted_epoch
