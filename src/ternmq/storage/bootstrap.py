"""What an empty replica starts from when its master's logs no longer begin at their first byte.

Retention removes the oldest segments, and with them what they told: which sequences were given out,
what producers had sent, how transactions ended. The master keeps that in its files `floor`,
`producers` and `halves`; they are the base on which the rest of its logs is read again. They may be
newer than the first byte that is streamed: reading a batch again changes nothing.

`install_base` puts the base into a directory whose logs are empty, while no store is open on it.
First it is written there as the file `base`; killed behind that, the next start goes on with it.

    at  size  base
     0     4  magic        b"BASE"
     4     4  crc          CRC-32C of bytes 8..
     8     4  version      1
    12     4  spare        zero
    16     .  msgpack of `BootstrapState`
"""

import struct
from pathlib import Path

import msgspec

from ternmq.core.errors import AlreadyExists, Corrupt
from ternmq.storage.files import checkpoint as checkpoint_file
from ternmq.storage.files.checkpoint import Checkpoint
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.paths import Paths
from ternmq.storage.files.whole_file import check_version, pack_whole, read_whole
from ternmq.storage.log.segmented_log import SegmentedLog

MAGIC = b"BASE"
VERSION = 1
HEADER = struct.Struct("<I4x")


class BootstrapState(msgspec.Struct, array_like=True, kw_only=True):
    """Where the logs begin, and the files that say what was before."""

    message_start: int
    pull_start: int
    floor: bytes
    producers: bytes
    halves: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BootstrapState)


def encode(state: BootstrapState) -> bytes:
    return pack_whole(MAGIC, HEADER.pack(VERSION) + _encoder.encode(state))


def decode(content: bytes) -> BootstrapState:
    """Raises `Corrupt` when this is not a whole base."""
    body = read_whole(content, MAGIC, "the base of a log", body_min=HEADER.size)
    check_version(HEADER.unpack_from(body)[0], VERSION, "the base of a log")
    try:
        return _decoder.decode(body[HEADER.size :])
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the base of a log cannot be read: {error}") from error


def install_base(disk: Disk, directory: Path, content: bytes) -> None:
    """Begin both logs where the master's begin; blocks. Raises `AlreadyExists` where a log has
    something, and `Corrupt`."""
    decode(content)
    paths = Paths(directory)
    for place in (directory, *paths.directories()):
        disk.mkdir(place)
    for folder in (paths.pull, paths.message):
        _empty(disk, folder).close()
    disk.write_atomic(paths.base, content)
    finish_base(disk, paths)


def finish_base(disk: Disk, paths: Paths) -> None:
    """Do, or do again, what the file `base` says, if there is one; blocks."""
    if not disk.exists(paths.base):
        return
    state = decode(disk.read(paths.base))
    for folder in (paths.consume, paths.index):
        for name in disk.names(folder):
            disk.unlink(folder / name)
        disk.sync_dir(folder)
    for mark in (paths.message_mark, paths.pull_mark):
        disk.unlink(mark)  # Of logs that were here before.
    disk.write_atomic(paths.floor, state.floor)
    disk.write_atomic(paths.producers, state.producers)
    disk.write_atomic(paths.halves, state.halves)
    starts = ((paths.pull, state.pull_start), (paths.message, state.message_start))
    for folder, start in starts:
        log = _empty(disk, folder)
        log.begin_at(start)
        log.close()
    marks = Checkpoint(
        message_durable=state.message_start,
        consume_covered=state.message_start,
        pull_durable=state.pull_start,
        pull_replay_from=state.pull_start,
        message_safe=state.message_start,
        pull_safe=state.pull_start,
    )
    disk.write_atomic(paths.checkpoint, checkpoint_file.encode(marks))
    disk.unlink(paths.base)
    disk.sync_dir(paths.directory)


def _empty(disk: Disk, directory: Path) -> SegmentedLog:
    log = SegmentedLog(disk, directory, segment_size=1)
    if log.end > log.start:
        raise AlreadyExists(
            f"{directory} has {log.end - log.start} bytes; a base is for an empty directory, "
            "move this one aside"
        )
    return log
