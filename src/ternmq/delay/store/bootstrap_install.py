"""Writes the files of a base into the empty directory of a new replica.

`BootstrapInstall` writes the files of a base (see `bootstrap`) into a folder `base/` of an empty
directory. `finish` syncs them, writes the manifest there as `complete`, and moves everything to its
place; killed behind `complete` the next start goes on with it, killed before, it throws the folder
away. Blocks.

    at  size  manifest
     0     4  magic  b"DBAS"
     4     4  crc    CRC-32C of bytes 8..
     8     .  msgpack of `Manifest` (an array, fields in order)
"""

from typing import NamedTuple

import msgspec

from ternmq.core.errors import AlreadyExists, Corrupt, ProtocolError
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.paths import DelayPaths, hour_name, hours_in
from ternmq.storage.files.disk import Buffer, Disk, File, write_all
from ternmq.storage.files.whole_file import pack_whole, read_whole
from ternmq.storage.log.segmented_log import SegmentedLog

MAGIC = b"DBAS"
SCHEDULE, DISPATCH = "schedule", "dispatch"


class BaseFile(NamedTuple):
    """One file, as far as it is copied."""

    kind: str
    """schedule or dispatch"""
    hour: int
    length: int


class Manifest(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """All of a base but the files themselves."""

    version: int = 1
    checkpoint: bytes
    producers: bytes
    files: list[tuple[str, int, int]]


def encode(manifest: Manifest) -> bytes:
    return pack_whole(MAGIC, msgspec.msgpack.encode(manifest))


def decode(content: bytes) -> Manifest:
    """Raises `Corrupt` when this is not a whole manifest."""
    body = read_whole(content, MAGIC, "the base of a delay server")
    try:
        found = msgspec.msgpack.decode(body, type=Manifest)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the base of a delay server cannot be read: {error}") from error
    if found.version != 1 or any(kind not in (SCHEDULE, DISPATCH) for kind, _, _ in found.files):
        raise Corrupt(f"the base of a delay server has version {found.version}, this is version 1")
    return found


class BootstrapInstall:
    """A base on its way to an empty directory, on which no store is open."""

    def __init__(self, disk: Disk, paths: DelayPaths, manifest: bytes) -> None:
        """Raises `Corrupt`, and `AlreadyExists` where there is something."""
        self._disk = disk
        self._paths = paths
        self._content = manifest
        self.files = [BaseFile(*file) for file in decode(manifest).files]
        for folder in (*paths.directories(), *paths.base_directories()):
            disk.mkdir(folder)
        _check_empty(disk, paths)
        _discard(disk, paths)
        self._left = {(file.kind, file.hour): (0, file.length) for file in self.files}
        self._open: tuple[str, int, File] | None = None

    def write(self, kind: str, hour: int, offset: int, data: Buffer) -> None:
        """The next bytes of a file. Raises `ProtocolError` where they do not follow on."""
        written, length = self._left.get((kind, hour), (-1, -1))
        if offset != written or offset + len(data) > length:
            raise ProtocolError(f"{kind} log {hour} goes on at {written}, not at {offset}")
        file = self._file(kind, hour)
        end = write_all(file, [data], offset)
        self._left[kind, hour] = (end, length)
        if end == length:
            file.sync()

    def _file(self, kind: str, hour: int) -> File:
        if self._open is None or self._open[:2] != (kind, hour):
            path = self._paths.base / kind / hour_name(hour)
            self._open = (kind, hour, self._disk.open(path, create=True))
        return self._open[2]

    def finish(self) -> None:
        """All of it is here: make it the content of the directory."""
        short = [name for name, (written, length) in self._left.items() if written < length]
        if short:
            raise ProtocolError(f"{len(short)} files of the base are not whole: {short[:3]}")
        self._open = None
        for folder in self._paths.base_directories():
            self._disk.sync_dir(folder)
        self._disk.write_atomic(self._paths.base_complete, self._content)
        finish_base(self._disk, self._paths)


def finish_base(disk: Disk, paths: DelayPaths) -> None:
    """Do, or do again, what is in the folder `base`, if that is complete; else remove it."""
    if not disk.exists(paths.base):
        return
    if not disk.exists(paths.base_complete):
        _discard(disk, paths)
        return
    manifest = decode(disk.read(paths.base_complete))
    known = checkpoint_file.decode(manifest.checkpoint)
    for kind, hour, _ in manifest.files:
        source = paths.base / kind / hour_name(hour)
        if disk.exists(source):
            disk.rename(source, paths.directory / kind / hour_name(hour))
    for folder in (paths.schedule, paths.dispatch, *paths.base_directories()):
        disk.sync_dir(folder)
    disk.write_atomic(paths.producers, manifest.producers)
    for path in (paths.checkpoint, paths.checkpoint_copy):
        disk.write_atomic(path, manifest.checkpoint)
    for mark in (paths.wal_mark, paths.decisions_mark):
        disk.unlink(mark)  # Of logs that were here before.
    disk.sync_dir(paths.directory)
    for folder, start in ((paths.wal, known.scheduled), (paths.decisions, known.decided_to)):
        log = SegmentedLog(disk, folder, segment_size=1)
        log.begin_at(start)
        log.close()
    disk.unlink(paths.base_complete)
    disk.sync_dir(paths.base)


def _discard(disk: Disk, paths: DelayPaths) -> None:
    for folder in paths.base_directories():
        if disk.exists(folder):
            for hour in hours_in(disk.names(folder)):
                disk.unlink(folder / hour_name(hour))


def _check_empty(disk: Disk, paths: DelayPaths) -> None:
    for folder in (paths.wal, paths.decisions):
        log = SegmentedLog(disk, folder, segment_size=1)
        held = log.end - log.start
        log.close()
        if held:
            raise AlreadyExists(f"{folder} has {held} bytes; move {paths.directory} aside")
    for folder in (paths.schedule, paths.dispatch):
        if hours_in(disk.names(folder)):
            raise AlreadyExists(f"{folder} has files of hours; move {paths.directory} aside")
