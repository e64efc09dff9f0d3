"""The log start: where the message log begins, and the sequence of every topic there.

Retention removes the oldest segments. What they told about a topic, the sequences that were given
out, must outlive them: a sequence is never given out twice. So before a segment goes, this file
says durably that it is gone and which sequence of each topic comes next. Replaced as a whole.
Little-endian.

    at  size  field
     0     4  magic        b"FLOR"
     4     4  crc          CRC-32C of bytes 8..
     8     4  version      1
    12     4  count        topics
    16     8  offset       the message log begins here; a segment below is gone, also if it is there
    24     .  per topic: topic_id u64, end_sequence u64

A start that finds segments below `offset` was killed while removing them, and removes them.
"""

import struct
from dataclasses import dataclass, field

from ternmq.core.errors import Corrupt
from ternmq.storage.files.whole_file import pack_whole, read_whole

MAGIC = b"FLOR"
VERSION = 1
HEADER = struct.Struct("<IIQ")
TOPIC = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class LogStart:
    """Nothing was removed yet: offset 0 and no topics."""

    offset: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    """Topic id to the sequence after the last one below `offset`."""


def encode(log_start: LogStart) -> bytes:
    topics = b"".join(TOPIC.pack(*item) for item in sorted(log_start.ends.items()))
    return pack_whole(MAGIC, HEADER.pack(VERSION, len(log_start.ends), log_start.offset) + topics)


def decode(content: bytes) -> LogStart:
    """Raises `Corrupt` when this is not a whole floor file."""
    body = read_whole(content, MAGIC, "the floor file", body_min=HEADER.size)
    version, count, offset = HEADER.unpack_from(body)
    if version != VERSION or len(body) != HEADER.size + count * TOPIC.size:
        raise Corrupt(f"the floor file has version {version} and {len(content)} bytes")
    return LogStart(offset, dict(TOPIC.iter_unpack(body[HEADER.size :])))
