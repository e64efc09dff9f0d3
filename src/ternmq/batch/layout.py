"""The bytes of a batch: the fixed header, the names, the buffer directory, the columns.

Little-endian. Every buffer starts on a multiple of eight, so Arrow and numpy read it in place. A
batch is written by a producer, stamped by a broker (bytes 8..128 only, under a checksum of their
own) and then never changed: producers, logs, replicas, consumers and Spark share these bytes.

    at  size  field
     0     4  magic            b"TERN"
     4     1  version          1
     5     1  reserved         zero
     6     2  header_size      where the first buffer starts; a multiple of 8
     8     4  batch_size       all of it; a multiple of 8
    12     4  stamp_crc        CRC-32C of bytes 0..12 and 16..128, so sizes are trusted before use
        -- stamped by the broker; zero on the way there
    16     8  offset           where this batch starts in its log; finds misdirected writes
    24     8  topic_id
    32     8  base_sequence    sequence of row 0
    40     8  epoch
    48     8  stored_at_ms     never less than the one before it in the log
    56     8  received_at_ms
    64     8  durable_to       every byte of the log below this was on disk when this was written
    72    16  client_ip        IPv6, or IPv4 mapped into it
    88    16  server_ip
   104     2  client_port
   106     2  server_port
   108    20  spare            zero
        -- by the producer; its checksum stays valid from end to end
   128     4  producer_crc     CRC-32C of bytes 132..batch_size
   132     4  attributes       see Attribute
   136     4  count            rows, 1..65,535
   140     4  body_size        bytes of all bodies before compression
   144     8  producer_start   start of the incarnation, ms (48 bits used)
   152     8  producer_random  (40 bits used)
   160     8  first_sequence   producer's message number of row 0 (40 bits used)
   168     8  base_born_ms     when row 0 was made; all rows, where there is no born column
   176     4  schema_id        reserved, zero
   180     4  key_id           zero: rows say themselves how they are encrypted, column SEAL
   184    16  spare            zero
   200     1  topic_size
   201     1  app_size
   202     2  buffer_count
   204     4  spare            zero
   208     .  topic, application (UTF-8), zeros up to a multiple of 8
     .    16  per buffer: column u16, part u8, type u8, encoding u8, 3 spare, offset u32, size u32
     .     .  the buffers, each padded with zeros to a multiple of 8

A reader skips and keeps columns that it does not know. Change a field: raise VERSION, keep the old
reader, add a golden file under tests/golden.
"""

import struct
from enum import IntEnum, IntFlag
from typing import NamedTuple

from crc32c import crc32c

from ternmq.core.errors import Corrupt, ProtocolError
from ternmq.core.units import KIB, MIB

MAGIC = b"TERN"
VERSION = 1

STAMP_START = 16
STAMP_END = 128
PRODUCER_CRC_AT = 128
BASE_BORN_AT = 168
FIXED_SIZE = 208
DIRECTORY_ENTRY_SIZE = 16

ROWS_MAX = 65_535
BATCH_SIZE_MAX = 4 * MIB
STORED_SIZE_MAX = BATCH_SIZE_MAX + 64 * KIB  # A dead letter says more than its message did.
BODY_SIZE_MAX = 64 * MIB  # Before compression, all bodies of a batch.
BUFFERS_MAX = 256
SPARE_BUFFERS = 16
"""Left free in batches whose rows get more columns before a broker sees them (again)."""
DUE_MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z; also the longest delay.
CHUNK_SIZE = 64 * KIB  # Before compression; a single larger row makes a larger chunk.

FRAMING = struct.Struct("<4sBxHII")
STAMP = struct.Struct("<QQQQqqQ16s16sHH20x")
TOPIC_ID = struct.Struct("<Q")
TOPIC_ID_AT = 24
"""In the stamp: the number of its topic. A delay server names it, the broker then sets it."""
PRODUCER = struct.Struct("<IIIIQQQqII16xBBH4x")
DIRECTORY = struct.Struct("<HBBB3xII")
COUNT = struct.Struct("<I")

assert FRAMING.size == STAMP_START
assert FRAMING.size + STAMP.size == STAMP_END == PRODUCER_CRC_AT
assert PRODUCER_CRC_AT + PRODUCER.size == FIXED_SIZE
assert DIRECTORY.size == DIRECTORY_ENTRY_SIZE

Buffer = bytes | bytearray | memoryview


class Attribute(IntFlag):
    """What kind of batch this is."""

    HALF = 1
    """Stored, without a sequence, until a control batch commits it."""
    CONTROL = 2
    """Carries a decision about other batches, not messages."""
    MERGED = 4
    """Made from several producers' messages; ids are in the explicit id column."""
    EXPIRES = 8
    """Some row has an expiry; without this bit nobody need look for the column."""
    RELATIVE = 16
    """DUE counts milliseconds after `received_at_ms`; without this bit it is a time, UTC."""
    IN_ORDER = 32
    """Has order keys, and its producer sends such batches one after the other: not to be stored
    behind a later one."""


class Column(IntEnum):
    """Which field a buffer belongs to."""

    BODY = 1
    KEY = 2
    ORDER_KEY = 3
    TAG = 4
    PROPERTIES = 5
    BORN = 6
    PRIORITY = 7
    EXPIRE = 8
    DUE = 9
    TRACE = 10
    """The context in which a row was made, see `batch.trace_context`."""
    EXPLICIT_ID = 11
    ORIGIN_APP = 12
    ORIGIN_ADDRESS = 13
    TRANSACTION = 14
    """Half batches: one DATA buffer that says what they belong to, see `batch.half`."""
    SEAL = 15
    """Rows whose body is encrypted: under which key, and how; see `batch.seal`."""


class ColumnPart(IntEnum):
    """Which Arrow buffer of its column this is."""

    VALIDITY = 0
    """One bit a row, least significant first; absent means that every row has a value."""
    OFFSETS = 1
    """count + 1 int32, starting at 0: row i is data[offsets[i]:offsets[i + 1]]."""
    DATA = 2
    VALUES = 3
    """One fixed-size number a row; for a tag, its int32 code in the dictionary."""
    CHUNKS = 4
    """Compressed bodies: per chunk first_row, offset, size, raw_size as u32."""
    DICTIONARY_OFFSETS = 5
    DICTIONARY_DATA = 6
    NAME_OFFSETS = 7
    NAME_DATA = 8
    VALUE_OFFSETS = 9
    VALUE_DATA = 10
    VALUE_TYPES = 11
    """Properties: one byte a value, see `batch.properties`."""


class Type(IntEnum):
    """The Arrow type of a column."""

    BINARY = 1
    UTF8 = 2
    INT64 = 3
    UINT8 = 4
    DICTIONARY = 5
    MAP = 6


class Encoding(IntEnum):
    """How a body DATA buffer is compressed."""

    PLAIN = 0
    ZSTD = 1
    LZ4 = 2


class Stamp(NamedTuple):
    """What the broker adds; in the order of its bytes, as the two below."""

    offset: int
    topic_id: int
    base_sequence: int
    epoch: int
    stored_at_ms: int
    received_at_ms: int
    durable_to: int
    client_ip: bytes = bytes(16)
    server_ip: bytes = bytes(16)
    client_port: int = 0
    server_port: int = 0


class Framing(NamedTuple):
    """Enough to walk from batch to batch."""

    header_size: int
    batch_size: int
    stamp_crc: int


class ProducerHeader(NamedTuple):
    """What the producer said about all rows."""

    crc: int
    attributes: int
    count: int  # type: ignore[assignment]
    body_size: int
    producer_start: int
    producer_random: int
    first_sequence: int
    base_born_ms: int
    schema_id: int
    key_id: int
    topic_size: int
    app_size: int
    buffer_count: int


def stamp(batch: bytearray | memoryview, stamp: Stamp) -> None:
    """Write the broker's fields into a producer's batch, in place."""
    STAMP.pack_into(
        batch,
        STAMP_START,
        stamp.offset,
        stamp.topic_id,
        stamp.base_sequence,
        stamp.epoch,
        stamp.stored_at_ms,
        stamp.received_at_ms,
        stamp.durable_to,
        stamp.client_ip,
        stamp.server_ip,
        stamp.client_port,
        stamp.server_port,
    )
    COUNT.pack_into(batch, 12, stamp_crc(batch))


def stamp_crc(batch: Buffer) -> int:
    """The checksum that the framing and stamp of this batch should carry."""
    view = memoryview(batch)
    return crc32c(view[STAMP_START:STAMP_END], crc32c(view[:12]))


def read_framing(batch: Buffer, at: int = 0) -> Framing:
    """Read sizes; raise `Corrupt` where they cannot belong to a batch."""
    if len(batch) - at < FIXED_SIZE:
        raise Corrupt(f"{len(batch) - at} bytes left, a batch header has {FIXED_SIZE}")
    magic, version, header_size, batch_size, crc = FRAMING.unpack_from(batch, at)
    if magic != MAGIC:
        raise Corrupt("not a batch: the magic bytes are missing")
    if version != VERSION:
        raise ProtocolError(f"batch version {version} is not known here; this is version {VERSION}")
    if not FIXED_SIZE <= header_size <= batch_size <= STORED_SIZE_MAX or batch_size % 8:
        raise Corrupt(f"batch sizes make no sense: header {header_size}, batch {batch_size}")
    return Framing(header_size, batch_size, crc)


def read_stamp(batch: Buffer, at: int = 0) -> Stamp:
    return Stamp._make(STAMP.unpack_from(batch, at + STAMP_START))


def read_producer_header(batch: Buffer, at: int = 0) -> ProducerHeader:
    return ProducerHeader._make(PRODUCER.unpack_from(batch, at + PRODUCER_CRC_AT))


def producer_crc(batch: Buffer) -> int:
    """The checksum that the producer's part of this batch should carry."""
    return crc32c(memoryview(batch)[PRODUCER_CRC_AT + 4 :])


def check_stamp(batch: Buffer, *, at_offset: int | None = None) -> Stamp:
    """Check framing and stamp as found on a disk; raise `Corrupt` on any mismatch."""
    framing = read_framing(batch)
    if framing.stamp_crc != stamp_crc(batch):
        raise Corrupt("the batch header does not match its checksum")
    found = read_stamp(batch)
    if at_offset is not None and found.offset != at_offset:
        raise Corrupt(f"offset {at_offset} holds a batch written for {found.offset}")
    return found


def check_whole(batch: Buffer, *, at_offset: int | None = None) -> Stamp:
    """Check everything a stored batch promises: framing, stamp and the producer's checksum."""
    found = check_stamp(batch, at_offset=at_offset)
    framing = read_framing(batch)
    whole = memoryview(batch)[: framing.batch_size]
    if len(whole) < framing.batch_size:
        raise Corrupt(f"batch of {framing.batch_size} bytes ends after {len(whole)}")
    (crc,) = COUNT.unpack_from(whole, PRODUCER_CRC_AT)
    if crc != producer_crc(whole):
        raise Corrupt("the batch does not match its checksum")
    return found
