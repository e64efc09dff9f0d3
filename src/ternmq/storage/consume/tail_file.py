"""The tail file: checkpoints of the consume entries of the active segment, one block after another.

Little-endian. Append-only. A block covers the message log from `start` to `end` without a gap, and
blocks follow each other without a gap, so whatever prefix of the file is whole can be trusted and
only the message log after it must be read. A block is written only when everything it covers is on
disk: its `end` is a durable mark.

    at  size  block header
     0     4  magic     b"TAIL"
     4     4  crc       CRC-32C of bytes 8.. of the block
     8     8  start     offset in the message log; the first block's is the segment's base
    16     8  end
    24     4  count
    28     4  version   1
    32     .  records, 80 bytes each, in log order (see `entry`); the block's checksum covers
              them, so the one inside each entry stays zero
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from ternmq.storage.consume.entry import RECORD_SIZE
from ternmq.storage.files.whole_file import FRAME

MAGIC = b"TAIL"
VERSION = 1
FIELDS = struct.Struct("<QQII")
HEADER_SIZE = 32

assert FRAME.size + FIELDS.size == HEADER_SIZE


class Tail(NamedTuple):
    """What a tail file holds, as far as it is whole."""

    end: int
    """The message log is covered up to here."""
    records: bytes
    size: int
    """Bytes of the file that are whole."""


def pack_block(start: int, end: int, records: bytes) -> bytes:
    """One block."""
    fields = FIELDS.pack(start, end, len(records) // RECORD_SIZE, VERSION)
    return FRAME.pack(MAGIC, crc32c(records, crc32c(fields))) + fields + records


def read_tail(content: bytes, base: int) -> Tail:
    """Read blocks until one is not whole or does not follow on."""
    view = memoryview(content)
    at, end = 0, base
    records: list[memoryview] = []
    while len(content) - at >= HEADER_SIZE:
        magic, crc = FRAME.unpack_from(view, at)
        start, block_end, count, version = FIELDS.unpack_from(view, at + FRAME.size)
        after = at + HEADER_SIZE + count * RECORD_SIZE
        if magic != MAGIC or version != VERSION or start != end or after > len(content):
            break
        if crc != crc32c(view[at + FRAME.size : after]):
            break
        records.append(view[at + HEADER_SIZE : after])
        at, end = after, block_end
    return Tail(end=end, records=b"".join(records), size=at)
