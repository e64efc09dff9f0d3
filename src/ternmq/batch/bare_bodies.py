"""Bare bodies: the commonest batch, written in one step and recognised in one.

A batch of bodies that are not compressed and have nothing beside them has one layout: header,
names, two directory entries, offsets, bodies, each behind the other. So writing one is two packs
and a join, and checking one is comparing what must stand there with what does. A lone sender's
message runs through cold code on both sides, where each line counts more than what it does.
A half batch of such bodies (`batch.half`) has one entry and one buffer more, behind the others: the
transaction that it belongs to.

`read_bare` answers only for a batch that is right in every respect; about any other it says
nothing, and `batch.check` looks at it part by part and says what is wrong. Never raises.
"""

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from ternmq.batch.layout import (
    BODY_SIZE_MAX,
    COUNT,
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    DUE_MAX_MS,
    FIXED_SIZE,
    FRAMING,
    MAGIC,
    PRODUCER,
    PRODUCER_CRC_AT,
    ROWS_MAX,
    STAMP,
    VERSION,
    Attribute,
    Buffer,
    Column,
    ColumnPart,
    Encoding,
    Type,
)
from ternmq.core.ids import MESSAGE_SEQUENCE_MAX, RANDOM_BITS, START_BITS, ProducerId

HEADER = struct.Struct(f"{FRAMING.format}{STAMP.size}x{PRODUCER.format[1:]}")
DIRECTORIES = struct.Struct(DIRECTORY.format + DIRECTORY.format[1:])
ONE_ROW = struct.Struct("<ii")
_OFFSETS = (int(Column.BODY), int(ColumnPart.OFFSETS), int(Type.BINARY), int(Encoding.PLAIN))
_DATA = (int(Column.BODY), int(ColumnPart.DATA), int(Type.BINARY), int(Encoding.PLAIN))
_TRANSACTION = (
    int(Column.TRANSACTION),
    int(ColumnPart.DATA),
    int(Type.BINARY),
    int(Encoding.PLAIN),
)
_PADDING = [bytes(n) for n in range(8)]
_BUFFERS = 2
_HALF = int(Attribute.HALF)
SMALL = 64  # Up to so many offsets a list is quicker than numpy.

assert HEADER.size == FIXED_SIZE
assert DIRECTORIES.size == _BUFFERS * DIRECTORY_ENTRY_SIZE


class BareBatch(NamedTuple):
    """What is known of a batch of bare bodies that is as it should be."""

    topic: str
    app: str
    row_count: int
    body_size: int
    producer: tuple[int, int]
    first_sequence: int


BareHalf = tuple[BareBatch, memoryview]
"""And the bytes that say which transaction it belongs to."""


class Names(NamedTuple):
    """Topic and application as they stand in a batch: padded, and how long each is."""

    packed: bytes
    topic_size: int
    app_size: int


@lru_cache(maxsize=4096)
def pack_names(topic: str, app: str) -> Names:
    first, second = topic.encode(), app.encode()
    padding = _PADDING[-(len(first) + len(second)) & 7]
    return Names(first + second + padding, len(first), len(second))


@lru_cache(maxsize=4096)
def split_names(packed: bytes, topic_size: int) -> tuple[str, str]:
    """At most 510 bytes each, so this cache is small whatever a peer sends."""
    return packed[:topic_size].decode(), packed[topic_size:].decode()


def write_bare(
    offsets: bytes,
    data: Buffer,
    *,
    names: Names,
    producer: ProducerId,
    first_sequence: int,
    born_at_ms: int,
    transaction: bytes | None = None,
) -> bytearray:
    """Bodies and where each ends, as a batch; with `transaction` as a half batch."""
    offsets_size, size = len(offsets), len(data)
    padding = _PADDING[-offsets_size & 7]
    header_size = FIXED_SIZE + len(names.packed) + DIRECTORIES.size
    if transaction is not None:
        header_size += DIRECTORY_ENTRY_SIZE
    bodies_at = header_size + offsets_size + len(padding)
    after = _PADDING[-size & 7]
    end = bodies_at + size + len(after)
    attributes, buffers, entry, last = 0, _BUFFERS, b"", b""
    if transaction is not None:
        entry = DIRECTORY.pack(*_TRANSACTION, end, len(transaction))
        last = transaction + _PADDING[-len(transaction) & 7]
        attributes, buffers, end = _HALF, _BUFFERS + 1, end + len(last)
    batch = bytearray().join(
        (
            HEADER.pack(
                MAGIC,
                VERSION,
                header_size,
                end,
                0,
                0,
                attributes,
                offsets_size // 4 - 1,
                size,
                producer.start_ms,
                producer.random,
                first_sequence,
                born_at_ms,
                0,
                0,
                names.topic_size,
                names.app_size,
                buffers,
            ),
            names.packed,
            DIRECTORIES.pack(*_OFFSETS, header_size, offsets_size, *_DATA, bodies_at, size),
            entry,
            offsets,
            padding,
            data,
            after,
            last,
        )
    )
    COUNT.pack_into(batch, PRODUCER_CRC_AT, crc32c(memoryview(batch)[PRODUCER_CRC_AT + 4 :]))
    return batch


def one_row(size: int) -> bytes:
    """The offsets of a single body."""
    return ONE_ROW.pack(0, size)


def read_bare(batch: bytearray | memoryview) -> BareBatch | None:
    """None: it is something else, or something is wrong with it."""
    found = _read(batch, half=False)
    return None if found is None else found[0]


def read_bare_half(batch: bytearray | memoryview) -> BareHalf | None:
    """A half batch; None as of `read_bare`."""
    return _read(batch, half=True)


def _read(batch: bytearray | memoryview, *, half: bool) -> BareHalf | None:
    size = len(batch)
    if size < FIXED_SIZE + DIRECTORIES.size:
        return None
    (
        magic,
        version,
        header_size,
        batch_size,
        _,
        crc,
        attributes,
        count,
        body_size,
        start,
        random,
        first_sequence,
        born,
        _,
        _,
        topic_size,
        app_size,
        buffers,
    ) = HEADER.unpack_from(batch)
    names_end = FIXED_SIZE + topic_size + app_size
    directory_at = (names_end + 7) & ~7
    offsets_size = 4 * count + 4
    bodies_at = header_size + (offsets_size + 7 & ~7)
    end = bodies_at + (body_size + 7 & ~7)
    if (
        buffers != _BUFFERS + half
        or attributes != (_HALF if half else 0)
        or (magic, version, batch_size) != (MAGIC, VERSION, size)
        or header_size != directory_at + DIRECTORIES.size + half * DIRECTORY_ENTRY_SIZE
        or not 0 < count <= ROWS_MAX
        or body_size > BODY_SIZE_MAX
        or (size < end if half else size != end)
        or not 0 <= born <= DUE_MAX_MS
        or start >> START_BITS
        or random >> RANDOM_BITS
        or first_sequence + count - 1 > MESSAGE_SEQUENCE_MAX
        or DIRECTORIES.unpack_from(batch, directory_at)
        != (*_OFFSETS, header_size, offsets_size, *_DATA, bodies_at, body_size)
    ):
        return None
    view = memoryview(batch)
    if crc != crc32c(view[PRODUCER_CRC_AT + 4 :]):
        return None
    transaction = view[end:]
    if half:
        entry = DIRECTORY.unpack_from(batch, directory_at + DIRECTORIES.size)
        if entry[:5] != (*_TRANSACTION, end) or size != end + (entry[5] + 7 & ~7):
            return None
        transaction = view[end : end + entry[5]]
    numbers = view[header_size : header_size + offsets_size].cast("i")
    if numbers[-1] != body_size or not rising(numbers):
        return None
    try:
        topic, app = split_names(bytes(view[FIXED_SIZE:names_end]), topic_size)
    except UnicodeDecodeError:
        return None
    bare = BareBatch(topic, app, count, body_size, (start, random), first_sequence)
    return bare, transaction


def rising(offsets: memoryview) -> bool:
    """Do offsets begin at zero and never go down?"""
    if offsets[0] != 0:
        return False
    if len(offsets) <= SMALL:
        listed = offsets.tolist()
        return bool(listed == sorted(listed))
    array = np.frombuffer(offsets, dtype="<i4")
    return bool((array[1:] >= array[:-1]).all())
