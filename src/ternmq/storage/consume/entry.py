"""The consume entry: where one batch of a topic is, and the record that checkpoints carry.

Little-endian.

    at  size  entry, 48 bytes
     0     8  base_sequence   sequence of the batch's first row
     8     8  offset          in the message log
    16     4  size            of the batch
    20     4  count           rows
    24     8  stored_at_ms
    32     8  tag_bloom
    40     1  priority        the highest of its rows
    41     1  location        0 a batch in the message log, 1 a half batch that was committed: it
                              lies where `offset` says, this row came with its control batch;
                              only in records: 2 a half batch, 3 a control batch (no sequences);
                              255 lost: bytes that cannot be read
    42     2  spare           zero
    44     4  checksum        CRC-32C of the topic id (8 bytes) and bytes 0..44

    at  size  record, 80 bytes: an entry with what else a restart must know of its batch
     0     8  topic_id
     8    48  entry
    56     8  producer_start
    64     8  producer_random
    72     8  first_sequence  the producer's message number of row 0

Records of committed half batches follow the record of their control batch; their offsets point
back. In memory and in the tail file the checksum is zero: it is filled in, for many entries at
once, when a table is written.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq.batch.layout import Buffer
from ternmq.core.errors import Corrupt

ENTRY = struct.Struct("<QQIIqQBB2xI")
ENTRY_SIZE = 48
RECORD = struct.Struct("<QQQIIqQBB2xIQQQ")
RECORD_SIZE = 80
CHECKSUM_AT = 44

assert ENTRY.size == ENTRY_SIZE
assert RECORD.size == RECORD_SIZE

RowBytes = NDArray[np.uint8]


class Location(IntEnum):
    """Where the bytes of an entry are."""

    MESSAGE_LOG = 0
    COMMITTED = 1
    """In the message log, stored before its sequence was decided."""
    HALF = 2
    CONTROL = 3
    LOST = 255


WITHOUT_SEQUENCE = (int(Location.HALF), int(Location.CONTROL))


class ConsumeEntry(NamedTuple):
    """One batch of a topic."""

    base_sequence: int
    offset: int
    size: int
    count: int  # type: ignore[assignment]  # Hides tuple.count, which nobody needs here.
    stored_at_ms: int
    tag_bloom: int
    priority: int
    location: int = Location.MESSAGE_LOG


def anchor(records: Buffer) -> int:
    """Where the last record of packed records starts that tells how far the log is covered."""
    at = len(records) - RECORD_SIZE
    while RECORD.unpack_from(records, at)[8] == Location.COMMITTED:
        at -= RECORD_SIZE
    return at


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    return table.astype(np.uint32)


_CRC = _crc_table()


def _crc_rows(rows: RowBytes, crc: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """CRC-32C of every row at once, going on from `crc` (not yet inverted)."""
    for column in range(rows.shape[1]):
        crc = _CRC[(crc ^ rows[:, column]) & 0xFF] ^ (crc >> np.uint32(8))
    return crc


def checksums(topic_ids: NDArray[np.int64], entries: RowBytes) -> NDArray[np.uint32]:
    """What bytes 44..48 of each entry should hold; `entries` has 48 columns."""
    ids = np.ascontiguousarray(topic_ids, dtype="<i8").view(np.uint8).reshape(-1, 8)
    crc = _crc_rows(ids, np.full(len(ids), 0xFFFFFFFF, dtype=np.uint32))
    return ~_crc_rows(entries[:, :CHECKSUM_AT], crc)


_STEP = 1 << 16  # Rows at a time: small enough to stay in the cache of the processor.


def seal_entries(topic_ids: NDArray[np.int64], entries: RowBytes) -> None:
    """Fill in the checksums, in place."""
    for low in range(0, len(entries), _STEP):
        part = entries[low : low + _STEP]
        crc = checksums(topic_ids[low : low + _STEP], part)
        part[:, CHECKSUM_AT:] = crc.astype("<u4").view(np.uint8).reshape(-1, 4)


def check_entries(topic_id: int, packed: Buffer) -> None:
    """Raise `Corrupt` unless every entry of this topic matches its checksum."""
    entries = np.frombuffer(packed, dtype=np.uint8).reshape(-1, ENTRY_SIZE)
    wanted = checksums(np.full(len(entries), topic_id, dtype=np.int64), entries)
    held = np.ascontiguousarray(entries[:, CHECKSUM_AT:]).view("<u4").ravel()
    if not np.array_equal(held, wanted):
        raise Corrupt(f"a consume entry of topic {topic_id} does not match its checksum")
