"""Checks a producer's batch before it is stored.

After this, every size and offset inside the batch is known to fit, so that cutting, indexing and
reading it later cannot run off its end. Bodies are never decompressed here: only the claims of the
chunk table are checked, and readers hold a chunk to its claim. Cheap for one row, vectorised for
many: this runs for every batch that arrives.
"""

import itertools
import struct
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from ternmq.batch.bare_bodies import read_bare, rising, split_names
from ternmq.batch.column_rules import Parts, check_columns
from ternmq.batch.compression import CHUNK
from ternmq.batch.layout import (
    BASE_BORN_AT,
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    BUFFERS_MAX,
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    DUE_MAX_MS,
    FIXED_SIZE,
    FRAMING,
    MAGIC,
    PRODUCER,
    PRODUCER_CRC_AT,
    ROWS_MAX,
    STORED_SIZE_MAX,
    VERSION,
    Attribute,
    Column,
    ColumnPart,
    Encoding,
    Type,
)
from ternmq.core.errors import Corrupt, ProtocolError, TooLarge
from ternmq.core.ids import MESSAGE_SEQUENCE_MAX, RANDOM_BITS, START_BITS
from ternmq.core.units import MIB, align8

BOMB_SIZE_MIN = 16 * MIB
BOMB_RATIO = 1_000
"""What compresses better than this is no message of anybody's."""

# Plain numbers: comparing enum members costs more than all the rest of checking a small batch.
_BODY, _TAG, _PRIORITY = int(Column.BODY), int(Column.TAG), int(Column.PRIORITY)
_DUE, _RELATIVE = int(Column.DUE), int(Attribute.RELATIVE)
_KEY, _EXPLICIT_ID = int(Column.KEY), int(Column.EXPLICIT_ID)
_ORDER_KEY, _IN_ORDER = int(Column.ORDER_KEY), int(Attribute.IN_ORDER)
_VALIDITY, _OFFSETS, _DATA = int(ColumnPart.VALIDITY), int(ColumnPart.OFFSETS), int(ColumnPart.DATA)
_VALUES, _CHUNKS, _VALUE_TYPES = (
    int(ColumnPart.VALUES),
    int(ColumnPart.CHUNKS),
    int(ColumnPart.VALUE_TYPES),
)
_WORD_OFFSETS, _WORD_DATA = int(ColumnPart.DICTIONARY_OFFSETS), int(ColumnPart.DICTIONARY_DATA)
_MAP, _INT64, _BINARY = int(Type.MAP), int(Type.INT64), int(Type.BINARY)
_PLAIN = int(Encoding.PLAIN)
_COMPRESSED = (int(Encoding.ZSTD), int(Encoding.LZ4))
_ALLOWED = Attribute.MERGED | Attribute.EXPIRES | Attribute.RELATIVE | Attribute.IN_ORDER
_FORBIDDEN = 0xFFFFFFFF & ~int(_ALLOWED)
_HALF = int(Attribute.HALF)
_BORN = struct.Struct("<q")
_OFFSET_PARTS = {
    _OFFSETS: _DATA,
    int(ColumnPart.NAME_OFFSETS): int(ColumnPart.NAME_DATA),
    int(ColumnPart.VALUE_OFFSETS): int(ColumnPart.VALUE_DATA),
    _WORD_OFFSETS: _WORD_DATA,
}
_VALUE_SIZES = {int(Type.INT64): 8, int(Type.UINT8): 1, int(Type.DICTIONARY): 4}


class Incoming(NamedTuple):
    """What the broker needs to know of a batch that passed."""

    topic: str
    app: str
    row_count: int
    body_size: int
    producer: tuple[int, int]
    first_sequence: int
    tag_bloom: int
    priority: int
    delayed: bool
    """It has due times, so it is for a delay server; see `batch.due`."""
    searchable: bool
    """Some row has a key or an id of its own."""
    ordered: bool = False
    """Some row has an order key."""
    in_order: bool = False
    """Never to be stored behind a later batch of its producer."""


def check_incoming(
    batch: bytearray | memoryview,
    *,
    size_max: int = BATCH_SIZE_MAX,
    half: bool = False,
    spare_buffers: int = 0,
) -> Incoming:
    """Check everything a producer controls; raise `ProtocolError`, `Corrupt` or `TooLarge`.

    With `half` it must be a half batch, else it must not be one. `spare_buffers` are kept free for
    what will be added to its rows: ids, where they came from (`batch.rows.merge`).
    """
    if not half and len(batch) <= size_max:
        bare = read_bare(batch)
        if bare is not None:
            return Incoming(*bare, 0, 0, False, False)
    incoming, parts = _describe(batch, size_max=size_max, half=half, words_max=ROWS_MAX)
    if len(parts) > BUFFERS_MAX - spare_buffers:
        raise ProtocolError(f"{len(parts)} buffers; at most {BUFFERS_MAX - spare_buffers} here")
    if sum([align8(place[1]) for place in parts.values()]) > len(batch) - FIXED_SIZE:
        raise ProtocolError("buffers of the batch lie over each other")
    if incoming.body_size > BOMB_SIZE_MIN:
        _refuse_bomb(incoming.body_size, parts[_BODY, _DATA][1])
    check_columns(batch, parts, half=half)
    (born,) = _BORN.unpack_from(batch, BASE_BORN_AT)
    if not 0 <= born <= DUE_MAX_MS:
        raise ProtocolError(f"the time at which rows were made must be 0 to {DUE_MAX_MS}")
    return incoming


def _refuse_bomb(body_size: int, size: int) -> None:
    """Few bytes that fill the memory of whoever consumes them."""
    if body_size > BOMB_RATIO * size:
        raise TooLarge(
            f"{size} bytes of bodies would become {body_size}: above {BOMB_SIZE_MIN // MIB} MiB "
            f"not more than {BOMB_RATIO} times as many are taken; send smaller messages"
        )


def describe_stored(batch: bytearray | memoryview, *, half: bool = False) -> Incoming:
    """The facts of a batch that is stored already: by us, or by the master of a replica.

    Its columns are not judged again. Releases before 0.2 stored what `check_incoming` refuses now,
    and a start or a replica that refused it would never end; each reader copes with it.
    """
    return _describe(batch, size_max=STORED_SIZE_MAX, half=half, words_max=len(batch))[0]


def _describe(
    batch: bytearray | memoryview, *, size_max: int, half: bool, words_max: int
) -> tuple[Incoming, Parts]:
    header_size = _check_framing(batch, size_max)
    (
        crc,
        attributes,
        count,
        body_size,
        start,
        random,
        first_sequence,
        _,
        _,
        _,
        topic_size,
        app_size,
        buffer_count,
    ) = PRODUCER.unpack_from(batch, PRODUCER_CRC_AT)
    if crc != crc32c(memoryview(batch)[PRODUCER_CRC_AT + 4 :]):
        raise Corrupt(
            "the batch was damaged on the way: its checksum does not match; send it again"
        )
    if not 0 < count <= ROWS_MAX or body_size > BODY_SIZE_MAX:
        raise ProtocolError(f"{count} rows or {body_size} body bytes are out of limits")
    if (attributes ^ _HALF if half else attributes) & _FORBIDDEN:
        raise ProtocolError(f"batch attributes {attributes:#x} are not allowed here")
    if (
        start >> START_BITS
        or random >> RANDOM_BITS
        or (first_sequence + count - 1 > MESSAGE_SEQUENCE_MAX)
    ):
        raise ProtocolError("the producer id or sequence has too many bits")
    names_end = align8(FIXED_SIZE + topic_size + app_size)
    directory_end = names_end + DIRECTORY_ENTRY_SIZE * buffer_count
    if (
        not 0 < buffer_count <= BUFFERS_MAX
        or directory_end > header_size
        or header_size > len(batch)
    ):
        raise ProtocolError("the buffer directory does not fit")
    parts = _read_directory(batch, names_end, directory_end, header_size)
    _check_sizes(batch, parts, count, body_size)
    topic, app = _names(batch, topic_size, app_size)
    bloom, priority = _summary(batch, parts, words_max)
    delayed = _check_due(batch, parts, relative=bool(attributes & _RELATIVE))
    producer = (start, random)
    searchable = (_KEY, _DATA) in parts or (_EXPLICIT_ID, _DATA) in parts
    ordered = (_ORDER_KEY, _DATA) in parts
    return (
        Incoming(
            topic,
            app,
            count,
            body_size,
            producer,
            first_sequence,
            bloom,
            priority,
            delayed,
            searchable,
            ordered,
            bool(attributes & _IN_ORDER),
        ),
        parts,
    )


def _check_framing(batch: bytearray | memoryview, size_max: int) -> int:
    """Is it a batch of this version, as long as it says? Return the size of its header."""
    size = len(batch)
    if size < FIXED_SIZE + DIRECTORY_ENTRY_SIZE:
        raise ProtocolError(f"{size} bytes cannot be a batch")
    if size > size_max:
        raise TooLarge(f"a batch of {size} bytes; the limit is {size_max}")
    magic, version, header_size, batch_size, _ = FRAMING.unpack_from(batch)
    if magic != MAGIC or batch_size != size or size % 8:
        raise ProtocolError("the batch's magic or size is wrong")
    if version != VERSION:
        raise ProtocolError(f"batch version {version} is not known here; this is version {VERSION}")
    return int(header_size)


def _names(batch: bytearray | memoryview, topic_size: int, app_size: int) -> tuple[str, str]:
    """The topic and the application."""
    names = bytes(batch[FIXED_SIZE : FIXED_SIZE + topic_size + app_size])
    try:
        return split_names(names, topic_size)
    except UnicodeDecodeError:
        raise ProtocolError("the topic or application name is not UTF-8") from None


def _check_due(batch: bytearray | memoryview, parts: Parts, *, relative: bool) -> bool:
    """Does it have due times? Then every row has one, and they lie within what a date can be."""
    place = parts.get((_DUE, _VALUES))
    if place is None:
        if relative:
            raise ProtocolError("a batch with relative due times has none")
        return False
    offset, size, _, kind = place
    if kind != _INT64 or (_DUE, _VALIDITY) in parts:
        raise ProtocolError("due times must be int64, one for every row")
    times = np.frombuffer(batch, dtype="<i8", count=size // 8, offset=offset)
    if int(times.min()) < 0 or int(times.max()) > DUE_MAX_MS:
        raise ProtocolError(f"due times must be 0 to {DUE_MAX_MS}")
    return True


def tag_bit(tag: bytes) -> int:
    """The bits of a 64-bit bloom filter that stand for this tag."""
    hashed = crc32c(tag)
    return (1 << (hashed & 63)) | (1 << ((hashed >> 8) & 63))


def _read_directory(batch: bytearray | memoryview, at: int, end: int, header_size: int) -> Parts:
    parts: Parts = {}
    size = len(batch)
    for column, part, kind, encoding, offset, length in DIRECTORY.iter_unpack(
        memoryview(batch)[at:end]
    ):
        if offset % 8 or offset < header_size or offset + length > size:
            raise ProtocolError(f"a buffer of column {column} does not lie inside the batch")
        if (column, part) in parts:
            raise ProtocolError(f"column {column} names one of its buffers twice")
        parts[column, part] = (offset, length, encoding, kind)
    return parts


def _check_sizes(batch: bytearray | memoryview, parts: Parts, count: int, body_size: int) -> None:
    if (_BODY, _OFFSETS) not in parts or (_BODY, _DATA) not in parts:
        raise ProtocolError("the batch has no body column")
    for (column, part), (offset, size, encoding, kind) in parts.items():
        if part in _OFFSET_PARTS:
            rows = _row_count(parts, column, part, count, size)
            data = parts.get((column, _OFFSET_PARTS[part]))
            last = _check_offsets(batch, offset, size, rows)
            if column == _BODY:
                if last != body_size:
                    raise ProtocolError("the body offsets do not match the body size")
            elif kind == _MAP and part == _OFFSETS:
                types = parts.get((column, _VALUE_TYPES))
                if types is None or types[1] != last:
                    raise ProtocolError("the properties' offsets do not match their types")
            elif data is None or data[1] != last:
                raise ProtocolError(f"column {column}: offsets and data do not match")
        elif part == _VALIDITY:
            if size != (count + 7) // 8:
                raise ProtocolError(f"column {column}: {size} bytes of validity for {count} rows")
        elif part == _VALUES:
            width = _VALUE_SIZES.get(kind)
            if width is None or size != width * count:
                raise ProtocolError(f"column {column}: {size} bytes of values for {count} rows")
        elif part == _DATA and column == _BODY:
            _check_bodies(batch, parts, size, encoding, count, body_size)


def _row_count(parts: Parts, column: int, part: int, count: int, size: int) -> int:
    if part == _OFFSETS:
        return count
    if part == _WORD_OFFSETS:
        return size // 4 - 1
    types = parts.get((column, _VALUE_TYPES))
    if types is None:
        raise ProtocolError(f"column {column} has properties without types")
    return types[1]


def _check_offsets(batch: bytearray | memoryview, offset: int, size: int, rows: int) -> int:
    """Offsets start at zero and never go down; return the last one."""
    if size != 4 * (rows + 1) or size <= 0:
        raise ProtocolError(f"{size} bytes of offsets for {rows} rows")
    offsets = memoryview(batch)[offset : offset + size].cast("i")
    if not rising(offsets):
        raise ProtocolError("offsets must start at zero and rise")
    return int(offsets[-1])


def _check_bodies(
    batch: bytearray | memoryview,
    parts: Parts,
    size: int,
    encoding: int,
    count: int,
    body_size: int,
) -> None:
    """Plain bodies have their full size; compressed ones a chunk table whose claims add up."""
    if encoding == _PLAIN:
        if size != body_size:
            raise ProtocolError(f"{size} bytes of bodies, {body_size} promised")
        return
    place = parts.get((_BODY, _CHUNKS))
    if encoding not in _COMPRESSED or place is None or place[1] % CHUNK.size:
        raise ProtocolError("compressed bodies need a known encoding and a chunk table")
    offsets_at = parts[_BODY, _OFFSETS][0]
    offsets = memoryview(batch)[offsets_at : offsets_at + 4 * (count + 1)].cast("i")
    chunks = list(CHUNK.iter_unpack(memoryview(batch)[place[0] : place[0] + place[1]]))
    at = 0
    for index, (first_row, offset, chunk_size, raw_size) in enumerate(chunks):
        end_row = chunks[index + 1][0] if index + 1 < len(chunks) else count
        if not (0 if index == 0 else 1) <= first_row < end_row <= count or offset != at:
            raise ProtocolError("the chunk table is out of order")
        if raw_size != offsets[end_row] - offsets[first_row]:
            raise ProtocolError("a chunk's size does not match its rows")
        at += chunk_size
    if at != size or not chunks or chunks[0][0] != 0:
        raise ProtocolError("the chunk table does not cover the bodies")


def _summary(batch: bytearray | memoryview, parts: Parts, words_max: int) -> tuple[int, int]:
    """What the consume log keeps of a batch: a bloom of its tags and its highest priority."""
    bloom = priority = 0
    words = parts.get((_TAG, _WORD_DATA))
    places = parts.get((_TAG, _WORD_OFFSETS))
    codes = parts.get((_TAG, _VALUES))
    if words is not None and places is not None and codes is not None:
        if places[1] // 4 > words_max + 1:
            raise ProtocolError(f"more than {words_max} different tags")
        data = bytes(batch[words[0] : words[0] + words[1]])
        offsets = memoryview(batch)[places[0] : places[0] + places[1]].cast("i").tolist()
        used = np.frombuffer(batch, dtype="<i4", count=codes[1] // 4, offset=codes[0])
        if not len(used) or used.min() < 0 or used.max() >= len(offsets) - 1:
            raise ProtocolError("a tag is not in its dictionary")
        for first, end in itertools.pairwise(offsets):
            bloom |= tag_bit(data[first:end])
    values = parts.get((_PRIORITY, _VALUES))
    if values is not None:
        priority = max(batch[values[0] : values[0] + values[1]])
    return bloom, priority
