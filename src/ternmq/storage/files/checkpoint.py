"""The checkpoint file: how far each log was on disk when it was written. Replaced as a whole.

Little-endian.

    at  size  field
     0     4  magic             b"CKPT"
     4     4  crc               CRC-32C of bytes 8..80
     8     4  version           2; 1 ends after stored_at_ms: all that was durable was safe
    12     4  clean             1 when the store was closed, 0 while it ran
    16     8  epoch
    24     8  message_durable   the message log was on disk up to here
    32     8  consume_covered   its consume entries were on disk up to here
    40     8  pull_durable      the pull log was on disk up to here
    48     8  pull_replay_from  the oldest pull record that a group needs
    56     8  stored_at_ms      of the last batch
    64     8  message_safe      the message log was safe up to here: on every member in sync
    72     8  pull_safe         the same of the pull log

Losing it costs time, not data: the logs are then read from where their own marks say.
"""

import struct
from dataclasses import dataclass

from ternmq.core.errors import Corrupt
from ternmq.storage.files.whole_file import FRAME, pack_whole, read_whole

MAGIC = b"CKPT"
VERSION = 2
FIELDS = struct.Struct("<IIQQQQQq")
SAFE = struct.Struct("<QQ")
SIZES = {1: 64, 2: 80}

assert FRAME.size + FIELDS.size == SIZES[1]
assert SIZES[1] + SAFE.size == SIZES[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Marks, all of them true at the time of writing."""

    clean: bool = False
    epoch: int = 0
    message_durable: int = 0
    consume_covered: int = 0
    pull_durable: int = 0
    pull_replay_from: int = 0
    stored_at_ms: int = 0
    message_safe: int = 0
    """Never above `message_durable`."""
    pull_safe: int = 0


def encode(checkpoint: Checkpoint) -> bytes:
    fields = FIELDS.pack(
        VERSION,
        checkpoint.clean,
        checkpoint.epoch,
        checkpoint.message_durable,
        checkpoint.consume_covered,
        checkpoint.pull_durable,
        checkpoint.pull_replay_from,
        checkpoint.stored_at_ms,
    ) + SAFE.pack(checkpoint.message_safe, checkpoint.pull_safe)
    return pack_whole(MAGIC, fields)


def decode(content: bytes) -> Checkpoint:
    """Raises `Corrupt` when this is not a whole checkpoint."""
    if len(content) not in SIZES.values():
        raise Corrupt(f"the checkpoint file has {len(content)} bytes, not {SIZES[VERSION]}")
    body = read_whole(content, MAGIC, "the checkpoint file")
    version, clean, epoch, message, consume, pull, replay, stored = FIELDS.unpack_from(body)
    if SIZES.get(version) != len(content):
        raise Corrupt(f"the checkpoint file has version {version}, this is version {VERSION}")
    safe = (message, pull) if version == 1 else SAFE.unpack_from(body, FIELDS.size)
    return Checkpoint(
        clean=bool(clean),
        epoch=epoch,
        message_durable=message,
        consume_covered=consume,
        pull_durable=pull,
        pull_replay_from=replay,
        stored_at_ms=stored,
        message_safe=safe[0],
        pull_safe=safe[1],
    )
