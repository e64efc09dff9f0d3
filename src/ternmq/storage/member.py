"""Who this data directory is in its broker group: the file `member`.

The id is made once, with the directory, and never changes: an empty directory is a new member. With
it goes the highest epoch that this member has accepted. Whoever has accepted epoch n + 1 never
follows the master of epoch n again, through restarts too: that is what stops an old master. And the
last record of how the group stood, which is not read here: it outlives a registry that is lost.
Replaced as a whole; `accept` and `note` return when it is on disk. Little-endian.

    at  size  field
     0     4  magic           b"MEMB"
     4     4  crc             CRC-32C of bytes 8..
     8     4  version         2; 1 has no record
    12     4  spare           zero
    16     8  id              random
    24     8  accepted_epoch
    32     .  record          the rest
"""

import secrets
import struct
from pathlib import Path

from crc32c import crc32c

from ternmq.core.errors import Corrupt
from ternmq.storage.disk import Disk

MAGIC = b"MEMB"
VERSION = 2
FRAME = struct.Struct("<4sI")
FIELDS = struct.Struct("<I4x8sQ")
SIZE = 32
ID_SIZE = 8

assert FRAME.size + FIELDS.size == SIZE


class MemberFile:
    """The member's identity on disk. One thread at a time."""

    def __init__(
        self, disk: Disk, path: Path, *, id: str, accepted_epoch: int, record: bytes = b""
    ) -> None:
        """Use `MemberFile.open`."""
        self._disk = disk
        self._path = path
        self.id = id
        """16 hexadecimal digits."""
        self.accepted_epoch = accepted_epoch
        self.record = record
        """How the group stood; empty: never noted."""

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> "MemberFile":
        """Read the file, or make it where there is none; blocks. Raises `Corrupt`."""
        path = directory / "member"
        disk.mkdir(directory)
        if disk.exists(path):
            id, accepted_epoch, record = decode(disk.read(path), path)
            return cls(disk, path, id=id, accepted_epoch=accepted_epoch, record=record)
        member = cls(disk, path, id=secrets.token_hex(ID_SIZE), accepted_epoch=0)
        member._write()
        return member

    def accept(self, epoch: int, record: bytes | None = None) -> bool:
        """Follow or lead at this epoch, in a group that stands so; False when a later one was
        accepted before. Blocks."""
        if epoch < self.accepted_epoch:
            return False
        self._replace(epoch, self.record if record is None else record)
        return True

    def note(self, record: bytes) -> None:
        """How the group stands now. Blocks."""
        self._replace(self.accepted_epoch, record)

    def _replace(self, epoch: int, record: bytes) -> None:
        before = self.accepted_epoch, self.record
        if before == (epoch, record):
            return
        self.accepted_epoch, self.record = epoch, record
        try:
            self._write()
        except BaseException:
            self.accepted_epoch, self.record = before  # Not known to be on disk: do not act on it.
            raise

    def _write(self) -> None:
        content = encode(self.id, self.accepted_epoch, self.record)
        self._disk.write_atomic(self._path, content)


def encode(id: str, accepted_epoch: int, record: bytes = b"") -> bytes:
    body = FIELDS.pack(VERSION, bytes.fromhex(id), accepted_epoch) + record
    return FRAME.pack(MAGIC, crc32c(body)) + body


def decode(content: bytes, path: Path) -> tuple[str, int, bytes]:
    """(id, accepted epoch, record). Raises `Corrupt`: a guess could follow a master that is fenced
    off."""
    magic, crc = FRAME.unpack_from(content) if len(content) >= SIZE else (b"", 0)
    if magic != MAGIC or crc != crc32c(content[FRAME.size :]):
        raise Corrupt(
            f"{path} is damaged, so this server does not know which member of its group it is: "
            "move its data directory aside and start again, it comes back as a new member"
        )
    version, id, accepted_epoch = FIELDS.unpack_from(content, FRAME.size)
    if version not in (1, VERSION):
        raise Corrupt(
            f"{path} has version {version}, this is version {VERSION}: start that release"
        )
    return id.hex(), accepted_epoch, content[SIZE:]
