"""The file `member`: the identity of this data directory in its broker group.

The id is made once, with the directory, and never changes: an empty directory is a new member. With
it goes the highest epoch that this member has accepted. Whoever has accepted epoch n + 1 never
follows the master of epoch n again, through restarts too: that is what stops an old master. And the
last record of how the group stood, which is not read here: it outlives a registry that is lost. And
whether its data is known to be damaged. Replaced as a whole; whatever changes it returns when it is
on disk. Little-endian.

    at  size  field
     0     4  magic           b"MEMB"
     4     4  crc             CRC-32C of bytes 8..
     8     4  version         2; 1 has no record
    12     4  flags           1: damaged, the rest zero
    16     8  id              random
    24     8  accepted_epoch
    32     .  record          the rest
"""

import secrets
import struct
from pathlib import Path
from typing import NamedTuple

from ternmq.core.errors import Corrupt
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.whole_file import pack_whole, read_whole

MAGIC = b"MEMB"
VERSION = 2
FIELDS = struct.Struct("<II8sQ")
ID_SIZE = 8
DAMAGED = 1


class MemberRecord(NamedTuple):
    """The content of the file `member`: who this server is in its group."""

    id: str
    """16 hexadecimal digits."""
    accepted_epoch: int = 0
    record: bytes = b""
    """How the group stood; empty: never noted."""
    damaged: bool = False
    """Of no use while others have everything: does not lead, does not answer for what it has."""


class MemberFile:
    """The member's identity on disk. One thread at a time."""

    def __init__(self, disk: Disk, path: Path, content: MemberRecord) -> None:
        """Use `MemberFile.open`."""
        self._disk = disk
        self._path = path
        self._content = content

    @property
    def id(self) -> str:
        return self._content.id

    @property
    def accepted_epoch(self) -> int:
        return self._content.accepted_epoch

    @property
    def record(self) -> bytes:
        return self._content.record

    @property
    def damaged(self) -> bool:
        return self._content.damaged

    @classmethod
    def open(cls, disk: Disk, directory: Path) -> "MemberFile":
        """Read the file, or make it where there is none; blocks. Raises `Corrupt`."""
        path = directory / "member"
        disk.mkdir(directory)
        if disk.exists(path):
            return cls(disk, path, decode(disk.read(path), path))
        content = MemberRecord(secrets.token_hex(ID_SIZE))
        disk.write_atomic(path, encode(content))
        return cls(disk, path, content)

    def accept(self, epoch: int, record: bytes | None = None) -> bool:
        """Follow or lead at this epoch, in a group that stands so; False when a later one was
        accepted before. Blocks."""
        if epoch < self.accepted_epoch:
            return False
        record = self.record if record is None else record
        self._replace(self._content._replace(accepted_epoch=epoch, record=record))
        return True

    def note(self, record: bytes) -> None:
        """How the group stands now. Blocks."""
        self._replace(self._content._replace(record=record))

    def note_damaged(self, damaged: bool) -> None:
        """Whether its data is known to be damaged. Blocks. Written anew where all files are gone:
        it is still this member."""
        if damaged:
            self._disk.mkdir(self._path.parent)
        if not self._disk.exists(self._path):
            self._disk.write_atomic(self._path, encode(self._content))
        self._replace(self._content._replace(damaged=damaged))

    def _replace(self, content: MemberRecord) -> None:
        """Nothing acts on a record before it is known to be on disk."""
        if content != self._content:
            self._disk.write_atomic(self._path, encode(content))
            self._content = content


def encode(content: MemberRecord) -> bytes:
    flags = DAMAGED if content.damaged else 0
    fields = FIELDS.pack(VERSION, flags, bytes.fromhex(content.id), content.accepted_epoch)
    return pack_whole(MAGIC, fields + content.record)


def decode(content: bytes, path: Path) -> MemberRecord:
    """Raises `Corrupt`: a guess could follow a master that is fenced off."""
    try:
        body = read_whole(content, MAGIC, str(path), body_min=FIELDS.size)
    except Corrupt as error:
        raise Corrupt(
            f"{path} is damaged, so this server does not know which member of its group it is: "
            "move its data directory aside and start again, it comes back as a new member"
        ) from error
    version, flags, id, accepted_epoch = FIELDS.unpack_from(body)
    if version not in (1, VERSION):
        raise Corrupt(
            f"{path} has version {version}, this is version {VERSION}: start that release"
        )
    return MemberRecord(id.hex(), accepted_epoch, bytes(body[FIELDS.size :]), bool(flags & DAMAGED))
