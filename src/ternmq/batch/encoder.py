"""Encodes messages into a batch.

`encode_bodies` is the fast path: bodies only, no Python per message beyond `len` and `join`, both
in C. `encode_messages` adds the columns that at least one message uses. Rows keep their order;
row i has the producer's message number `first_sequence + i`. Returned batches have zeros where the
broker stamps. Never splits a batch: `split_rows` says how to cut a long list first.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from ternmq.batch import compression
from ternmq.batch.bare_bodies import one_row, pack_names, write_bare
from ternmq.batch.layout import (
    BATCH_SIZE_MAX,
    BODY_SIZE_MAX,
    COUNT,
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
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
from ternmq.batch.properties import PropertyValue, value_to_text
from ternmq.batch.trace_context import pack_traces
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.core.ids import ProducerId
from ternmq.core.units import MIB

SMALL = 64  # Below this many rows plain Python beats numpy's fixed costs.
NO_SUBJECT = (
    "subject= is for topics whose bodies are encrypted: 'tern topic set NAME --master-key KEY', or "
    "leave it out"
)
_SUBJECT, _TRACE = attrgetter("subject"), attrgetter("trace")
_NO_STAMP = bytes(STAMP.size)
_PADDING = [bytes(n) for n in range(8)]


@dataclass(slots=True, kw_only=True)
class Outgoing:
    """One message to be sent, with everything but its topic."""

    body: bytes
    key: str | None = None
    tag: str | None = None
    properties: Mapping[str, PropertyValue] | None = None
    order_key: str | None = None
    priority: int = 0
    expire_at_ms: int | None = None
    due_at_ms: int | None = None
    """To be handed out from this moment on, and not before; needs a delay server."""
    born_at_ms: int = 0
    explicit_id: bytes | None = None
    delay_ms: int | None = None
    """The same, counted from the moment in which the delay server gets it."""
    subject: str | None = None
    """Whom it is about: its body is encrypted under a key of its own, which can be erased."""
    seal: bytes | None = None
    """The body is encrypted already, and how; see `batch.seal`. Never set by applications."""
    trace: str | None = None  # The context in which it was made; see `batch.trace_context`.


class RowOrigin(NamedTuple):
    """Who sent a row first, where its batch is a copy that another one stores."""

    app: str
    address: bytes
    """IPv6 and port, 18 bytes; empty where it is not known."""


class Due(NamedTuple):
    """When all rows of a batch are due: a time (UTC), or so long after the server got them."""

    ms: int
    relative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a batch comes from and where it goes."""

    topic: str
    app: str
    producer: ProducerId
    in_order: bool = False
    """Its batches go out one after the other."""
    sealed: bool = False
    """Some of its rows have seals."""


@dataclass(slots=True)
class Section:
    """One buffer of one column."""

    column: int
    part: int
    type: int
    data: Buffer
    encoding: int = Encoding.PLAIN


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows that are columns already; see `encode_columns`."""

    pieces: list[Section]
    count: int
    body_size: int
    born_at_ms: int
    attributes: int = 0


def encode_bodies(
    bodies: Sequence[bytes],
    *,
    origin: Origin,
    first_sequence: int,
    born_at_ms: int,
    encoding: Encoding = Encoding.ZSTD,
    due: Due | None = None,
    transaction: bytes | None = None,
) -> bytearray:
    """A batch of bodies that share everything else; with `transaction` a half batch."""
    if due is None and _stays_plain(bodies, encoding):
        batch = write_bare(
            one_row(len(bodies[0])),
            bodies[0],
            names=pack_names(origin.topic, origin.app),
            producer=origin.producer,
            first_sequence=first_sequence,
            born_at_ms=born_at_ms,
            transaction=transaction,
        )
        return _checked(batch, len(bodies), BATCH_SIZE_MAX)
    pieces, body_size = _body_pieces(bodies, encoding)
    more, attributes = _alike(len(bodies), due, transaction)
    pieces += more
    batch = assemble(pieces, len(bodies), body_size, origin, first_sequence, born_at_ms, attributes)
    return _checked(batch, len(bodies), BATCH_SIZE_MAX)


def encode_sealed(
    bodies: Sequence[bytes],
    seals: Sequence[bytes | None],
    *,
    origin: Origin,
    first_sequence: int,
    born_at_ms: int,
    due: Due | None = None,
    transaction: bytes | None = None,
) -> bytearray:
    """Encodes bodies that are encrypted, each with its seal."""
    pieces, body_size = _body_pieces(bodies, Encoding.PLAIN)
    more, attributes = _alike(len(bodies), due, transaction)
    pieces += _binary_pieces(Column.SEAL, Type.BINARY, list(seals)) + more
    batch = assemble(pieces, len(bodies), body_size, origin, first_sequence, born_at_ms, attributes)
    return _checked(batch, len(bodies), BATCH_SIZE_MAX)


def with_seals(
    messages: Sequence[Outgoing], bodies: Sequence[bytes], seals: Sequence[bytes | None]
) -> list[Outgoing]:
    """The same messages with encrypted bodies, to be encoded."""
    return [
        replace(message, body=body, seal=seal, subject=None)
        for message, body, seal in zip(messages, bodies, seals, strict=True)
    ]


def _alike(count: int, due: Due | None, transaction: bytes | None) -> tuple[list[Section], int]:
    """What rows have that share everything but their bodies, and the attributes of the batch."""
    pieces: list[Section] = []
    attributes = 0
    if due is not None:
        times = np.full(count, due.ms, "<i8").tobytes()
        pieces.append(Section(Column.DUE, ColumnPart.VALUES, Type.INT64, times))
        attributes = int(Attribute.RELATIVE) if due.relative else 0
    if transaction is not None:
        attributes |= int(Attribute.HALF)
        pieces.append(Section(Column.TRANSACTION, ColumnPart.DATA, Type.BINARY, transaction))
    return pieces, attributes


def _stays_plain(bodies: Sequence[bytes], encoding: Encoding) -> bool:
    """Is it a single body, too small to be worth compressing?"""
    return len(bodies) == 1 and (
        encoding is Encoding.PLAIN or len(bodies[0]) <= compression.MEAN_BODY_SIZE_MIN
    )


def encode_messages(
    messages: Sequence[Outgoing],
    *,
    origin: Origin,
    first_sequence: int,
    encoding: Encoding = Encoding.ZSTD,
    size_max: int = BATCH_SIZE_MAX,
    transaction: bytes | None = None,
    origins: Sequence[RowOrigin] = (),
) -> bytearray:
    """A batch of messages; a column is written only where some message has a value for it.

    With `transaction` (see `batch.half`) it is a half batch; `origins`: of copies, one for each.
    """
    pieces, body_size = _body_pieces([message.body for message in messages], encoding)
    pieces += _text_pieces(Column.KEY, [message.key for message in messages])
    pieces += _text_pieces(Column.ORDER_KEY, [message.order_key for message in messages])
    pieces += _tag_pieces([message.tag for message in messages])
    pieces += _property_pieces([message.properties for message in messages])
    born = messages[0].born_at_ms
    if any(message.born_at_ms != born for message in messages):
        values = np.fromiter((message.born_at_ms for message in messages), "<i8", len(messages))
        pieces.append(Section(Column.BORN, ColumnPart.VALUES, Type.INT64, values.tobytes()))
    if any(message.priority for message in messages):
        priorities = bytes(message.priority for message in messages)
        pieces.append(Section(Column.PRIORITY, ColumnPart.VALUES, Type.UINT8, priorities))
    pieces += _time_pieces(Column.EXPIRE, [message.expire_at_ms for message in messages])
    relative = messages[0].delay_ms is not None
    pieces += _due_pieces(messages, relative=relative)
    explicit = [message.explicit_id for message in messages]
    if any(value is not None for value in explicit):
        pieces += _binary_pieces(Column.EXPLICIT_ID, Type.BINARY, explicit)
    if origin.sealed:
        pieces += _binary_pieces(Column.SEAL, Type.BINARY, [one.seal for one in messages])
    if any(map(_TRACE, messages)):
        pieces += _binary_pieces(Column.TRACE, Type.BINARY, pack_traces(map(_TRACE, messages)))
    if any(map(_SUBJECT, messages)):  # Those of sealed rows are gone by now.
        raise BadRequest(NO_SUBJECT)
    if origins:
        pieces += _text_pieces(Column.ORIGIN_APP, [one.app or None for one in origins])
        addresses = [one.address or None for one in origins]
        if any(address is not None for address in addresses):
            pieces += _binary_pieces(Column.ORIGIN_ADDRESS, Type.BINARY, addresses)
    expires = any(message.expire_at_ms is not None for message in messages)
    attributes = (Attribute.EXPIRES if expires else 0) | (Attribute.RELATIVE if relative else 0)
    attributes |= Attribute.IN_ORDER if origin.in_order else 0
    if transaction is not None:
        attributes |= Attribute.HALF
        pieces.append(Section(Column.TRANSACTION, ColumnPart.DATA, Type.BINARY, transaction))
    batch = assemble(pieces, len(messages), body_size, origin, first_sequence, born, attributes)
    return _checked(batch, len(messages), size_max)


def encode_columns(
    columns: Columns, *, origin: Origin, first_sequence: int, transaction: bytes
) -> bytearray:
    """A half batch of buffers that already have the layout of a batch."""
    pieces = [
        *columns.pieces,
        Section(Column.TRANSACTION, ColumnPart.DATA, Type.BINARY, transaction),
    ]
    attributes = columns.attributes | int(Attribute.HALF)
    count, body_size, born_at_ms = columns.count, columns.body_size, columns.born_at_ms
    batch = assemble(pieces, count, body_size, origin, first_sequence, born_at_ms, attributes)
    return _checked(batch, count, BATCH_SIZE_MAX)


def encode_control(
    body: bytes, *, origin: Origin, first_sequence: int, born_at_ms: int
) -> bytearray:
    """The broker's own batch of one row, which decides about other batches."""
    pieces, body_size = _body_pieces([body], Encoding.PLAIN)
    attributes = int(Attribute.CONTROL)
    return assemble(pieces, 1, body_size, origin, first_sequence, born_at_ms, attributes)


def split_rows(
    sizes: Sequence[int] | np.ndarray, *, rows_max: int, size_max: int
) -> list[tuple[int, int]]:
    """Row ranges, each within the limits; a single row over `size_max` stands alone."""
    ends = np.cumsum(np.asarray(sizes, dtype=np.int64))
    count = len(ends)
    ranges: list[tuple[int, int]] = []
    first = 0
    while first < count:
        before = int(ends[first - 1]) if first else 0
        end = int(np.searchsorted(ends, before + size_max, side="right"))
        end = min(max(end, first + 1), first + rows_max, count)
        ranges.append((first, end))
        first = end
    return ranges


def _body_pieces(bodies: Sequence[bytes], encoding: Encoding) -> tuple[list[Section], int]:
    count = len(bodies)
    if not 0 < count <= ROWS_MAX:
        raise TooLarge(f"a batch holds 1 to {ROWS_MAX} messages, not {count}")
    data = bodies[0] if count == 1 else b"".join(bodies)
    if len(data) > BODY_SIZE_MAX:
        raise TooLarge(f"{len(data)} bytes of bodies; at most {BODY_SIZE_MAX // MIB} MiB a batch")
    packed, offsets = _offsets(map(len, bodies), count)
    if encoding is not Encoding.PLAIN and len(data) > compression.MEAN_BODY_SIZE_MIN * count:
        numbers = offsets if isinstance(offsets, list) else offsets.tolist()
        smaller = compression.compress(data, numbers, encoding)
        if smaller is not None:
            table, compressed = smaller
            return [
                Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, packed),
                Section(Column.BODY, ColumnPart.CHUNKS, Type.BINARY, table),
                Section(Column.BODY, ColumnPart.DATA, Type.BINARY, compressed, encoding),
            ], len(data)
    return [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, packed),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, data),
    ], len(data)


def _offsets(sizes: Iterable[int], count: int) -> tuple[bytes, list[int] | np.ndarray]:
    """Arrow's int32 offsets, packed and as numbers."""
    if count < SMALL:
        numbers = list(accumulate(sizes, initial=0))
        return struct.pack(f"<{count + 1}i", *numbers), numbers
    array = np.empty(count + 1, dtype="<i4")
    array[0] = 0
    np.cumsum(np.fromiter(sizes, dtype="<i4", count=count), out=array[1:])
    return array.tobytes(), array


def validity_bits(present: Sequence[bool]) -> bytes:
    """Arrow's validity bitmap, least significant bit first."""
    return np.packbits(np.asarray(present, dtype=bool), bitorder="little").tobytes()


def _text_pieces(column: Column, values: list[str | None]) -> list[Section]:
    if not any(value is not None for value in values):
        return []
    encoded = [None if value is None else value.encode() for value in values]
    return _binary_pieces(column, Type.UTF8, encoded)


def _binary_pieces(column: Column, kind: Type, values: list[bytes | None]) -> list[Section]:
    pieces: list[Section] = []
    if None in values:
        present = [value is not None for value in values]
        pieces.append(Section(column, ColumnPart.VALIDITY, kind, validity_bits(present)))
    filled = [value or b"" for value in values]
    packed, _ = _offsets(map(len, filled), len(filled))
    pieces.append(Section(column, ColumnPart.OFFSETS, kind, packed))
    pieces.append(Section(column, ColumnPart.DATA, kind, b"".join(filled)))
    return pieces


def _tag_pieces(tags: list[str | None]) -> list[Section]:
    if not any(tag is not None for tag in tags):
        return []
    codes: dict[str, int] = {}
    values = [0 if tag is None else codes.setdefault(tag, len(codes)) for tag in tags]
    words = [tag.encode() for tag in codes]
    packed, _ = _offsets(map(len, words), len(words))
    pieces: list[Section] = []
    if None in tags:
        present = validity_bits([tag is not None for tag in tags])
        pieces.append(Section(Column.TAG, ColumnPart.VALIDITY, Type.DICTIONARY, present))
    return [
        *pieces,
        Section(
            Column.TAG, ColumnPart.VALUES, Type.DICTIONARY, struct.pack(f"<{len(values)}i", *values)
        ),
        Section(Column.TAG, ColumnPart.DICTIONARY_OFFSETS, Type.DICTIONARY, packed),
        Section(Column.TAG, ColumnPart.DICTIONARY_DATA, Type.DICTIONARY, b"".join(words)),
    ]


def _property_pieces(rows: list[Mapping[str, PropertyValue] | None]) -> list[Section]:
    if not any(rows):
        return []
    names: list[bytes] = []
    values: list[bytes] = []
    types = bytearray()
    for properties in rows:
        for name, value in (properties or {}).items():
            kind, text = value_to_text(value)
            names.append(name.encode())
            values.append(text)
            types.append(kind)
    row_offsets, _ = _offsets((len(properties or ()) for properties in rows), len(rows))
    name_offsets, _ = _offsets(map(len, names), len(names))
    value_offsets, _ = _offsets(map(len, values), len(values))
    parts: list[tuple[ColumnPart, Buffer]] = [
        (ColumnPart.OFFSETS, row_offsets),
        (ColumnPart.NAME_OFFSETS, name_offsets),
        (ColumnPart.NAME_DATA, b"".join(names)),
        (ColumnPart.VALUE_OFFSETS, value_offsets),
        (ColumnPart.VALUE_DATA, b"".join(values)),
        (ColumnPart.VALUE_TYPES, bytes(types)),
    ]
    return [Section(Column.PROPERTIES, part, Type.MAP, data) for part, data in parts]


def _time_pieces(column: Column, values: list[int | None]) -> list[Section]:
    if not any(value is not None for value in values):
        return []
    pieces: list[Section] = []
    if None in values:
        present = validity_bits([value is not None for value in values])
        pieces.append(Section(column, ColumnPart.VALIDITY, Type.INT64, present))
    packed = struct.pack(f"<{len(values)}q", *(value or 0 for value in values))
    pieces.append(Section(column, ColumnPart.VALUES, Type.INT64, packed))
    return pieces


def _due_pieces(messages: Sequence[Outgoing], *, relative: bool) -> list[Section]:
    """All rows or none have a due time, and all of them the same kind of it."""
    times = [message.due_at_ms for message in messages]
    delays = [message.delay_ms for message in messages]
    wanted, others = (delays, times) if relative else (times, delays)
    given = [value for value in wanted if value is not None]
    if len(given) not in (0, len(messages)) or any(value is not None for value in others):
        raise BadRequest("a batch holds messages for now, for a time, or after a delay: one kind")
    return _time_pieces(Column.DUE, wanted)


def assemble(
    pieces: list[Section],
    count: int,
    body_size: int,
    origin: Origin,
    first_sequence: int,
    base_born_ms: int,
    attributes: int = 0,
) -> bytearray:
    """Header, names, directory and buffers as one block of bytes."""
    names = pack_names(origin.topic, origin.app)
    header_size = at = FIXED_SIZE + len(names.packed) + DIRECTORY_ENTRY_SIZE * len(pieces)
    directory: list[bytes] = []
    buffers: list[Buffer] = []
    for piece in pieces:
        size = len(piece.data)
        directory.append(
            DIRECTORY.pack(piece.column, piece.part, piece.type, piece.encoding, at, size)
        )
        buffers.append(piece.data)
        padding = -size & 7
        if padding:
            buffers.append(_PADDING[padding])
        at += size + padding
    producer = origin.producer
    batch = bytearray().join(
        (
            FRAMING.pack(MAGIC, VERSION, header_size, at, 0),
            _NO_STAMP,
            PRODUCER.pack(
                0,
                attributes,
                count,
                body_size,
                producer.start_ms,
                producer.random,
                first_sequence,
                base_born_ms,
                0,
                0,
                names.topic_size,
                names.app_size,
                len(pieces),
            ),
            names.packed,
            *directory,
            *buffers,
        )
    )
    COUNT.pack_into(batch, PRODUCER_CRC_AT, crc32c(memoryview(batch)[PRODUCER_CRC_AT + 4 :]))
    return batch


def _checked(batch: bytearray, count: int, size_max: int) -> bytearray:
    if len(batch) > size_max:
        raise TooLarge(
            f"{count} message(s) need {len(batch)} bytes after compression; the limit is "
            f"{BATCH_SIZE_MAX // MIB} MiB: send less at once, or send a link to large data"
        )
    return batch
