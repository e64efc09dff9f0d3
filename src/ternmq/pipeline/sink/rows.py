"""Rows of a data frame as batches: Arrow's buffers become the columns of a batch as they are.

The reverse of `rows`. Nothing is done row by row: offsets are rebased, null slots take no bytes,
tags are dictionary-encoded by Arrow. A slice of a column is cut exactly, never sent whole.
"""

from collections.abc import Iterator
from difflib import get_close_matches

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ternmq.batch import compression
from ternmq.batch.encoder import Columns, Section
from ternmq.batch.layout import (
    BATCH_SIZE_MAX,
    Attribute,
    Buffer,
    Column,
    ColumnPart,
    Encoding,
    Type,
)
from ternmq.batch.properties import PROPERTIES_MAX, STRING
from ternmq.client.model.outgoing import TEXT_SIZE_MAX
from ternmq.core.errors import BadRequest
from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.core.units import DAY_MS, KIB
from ternmq.pipeline.sink.sealed_rows import take_seals

ROWS_MAX = 16_384
SIZE_MAX = 1024 * 1024
"""Bytes of bodies in one batch, before compression."""

BATCH_SIZE_FINE = BATCH_SIZE_MAX - 64 * KIB
"""Of all columns together, which leaves room for the header."""

AHEAD_MAX_DAYS = 731
"""As far as delay servers take messages unless they are told otherwise."""

TEXTS = {"key": Column.KEY, "order_key": Column.ORDER_KEY}
COLUMNS = ("body", "key", "tag", "order_key", "properties", "id", "born_at", "topic", "deliver_at")
NOT_SENT = ("broker_group", "sequence", "stored_at", "app", "client_address", "size")
"""Columns of the source that are the broker's to say: left out, so that a topic is copied as it is
read."""
_VALUES = np.full(256, 255, np.uint8)
for _value, _letter in enumerate(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"):
    _VALUES[_letter] = _value


def check_columns(names: list[str], *, topic: str) -> None:
    """Refuse a data frame that cannot be sent, saying what it lacks."""
    if "body" not in names:
        raise BadRequest(f"the tern sink needs a column 'body'; there are: {', '.join(names)}")
    if not topic and "topic" not in names:
        raise BadRequest("say where to: the option 'topic', or a column 'topic'")
    for name in names:
        if name not in COLUMNS and name not in NOT_SENT:
            near = get_close_matches(name, COLUMNS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(COLUMNS)}"
            raise BadRequest(f"the tern sink has no column {name!r}; {hint}")


def check_rows(batch: pa.RecordBatch) -> None:
    """Refuse what `send` refuses too, so that a reader of a message may send it on."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in ("key", "tag", "order_key"):
        size = pc.max(pc.binary_length(columns[name])).as_py() if name in columns else None
        if size is not None and size > TEXT_SIZE_MAX:
            raise BadRequest(f"{name} has {size} bytes; at most {TEXT_SIZE_MAX} are allowed")
    if "properties" in columns:
        rows = columns["properties"].filter(pc.is_valid(columns["properties"]))  # A copy.
        most = int(np.diff(rows.offsets.to_numpy()).max(initial=0))
        if most > PROPERTIES_MAX:
            raise BadRequest(f"{most} properties; at most {PROPERTIES_MAX} are allowed")
        if len(rows) and pc.any(pc.equal(pc.binary_length(rows.keys), 0)).as_py():
            raise BadRequest("a property has an empty name")


def split_due(batch: pa.RecordBatch, now_ms: int) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """The rows for now (without `deliver_at`), then those for later: (are they for later, rows)."""
    at = batch.schema.get_field_index("deliver_at")
    if at < 0:
        yield False, batch
        return
    due = pc.cast(batch.column(at), pa.timestamp("us", tz="UTC")).cast(pa.int64())
    later = pc.fill_null(pc.greater(due, now_ms * 1000), False)
    if pc.any(pc.greater(due, (now_ms + AHEAD_MAX_DAYS * DAY_MS) * 1000)).as_py():
        raise BadRequest(f"a deliver_at lies more than {AHEAD_MAX_DAYS} days ahead")
    now, waiting = batch.filter(pc.invert(later)), batch.filter(later)
    if now.num_rows:
        yield False, now.drop_columns(["deliver_at"])
    if waiting.num_rows:
        yield True, waiting


def split_topics(batch: pa.RecordBatch, topic: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows by topic."""
    if topic:
        yield topic, batch
        return
    topics = batch.column(batch.schema.get_field_index("topic"))
    if topics.null_count:
        raise BadRequest("the column 'topic' has a null; every row needs a topic")
    for name in pc.unique(topics).to_pylist():
        yield name, batch.filter(pc.equal(topics, name))


def batches(rows: pa.RecordBatch, now_ms: int) -> Iterator[Columns]:
    """The rows in batches of a good size, in order."""
    bodies = _binary(rows.column(rows.schema.get_field_index("body")), pa.binary())
    if bodies.null_count:
        raise BadRequest("the column 'body' has a null; a message has a body, if only an empty one")
    ends = np.frombuffer(bodies.buffers()[1], "<i4")[bodies.offset :][: len(bodies) + 1]
    first = 0
    while first < rows.num_rows:
        until = int(np.searchsorted(ends, int(ends[first]) + SIZE_MAX, side="right")) - 1
        end = min(max(until, first + 1), first + ROWS_MAX, rows.num_rows)
        yield from _fitting(rows.slice(first, end - first), now_ms)
        first = end


def _fitting(rows: pa.RecordBatch, now_ms: int) -> Iterator[Columns]:
    """One batch, or several where keys and properties make it too large."""
    made = _batch(rows, now_ms)
    if rows.num_rows > 1 and sum(len(piece.data) for piece in made.pieces) > BATCH_SIZE_FINE:
        middle = rows.num_rows // 2
        yield from _fitting(rows.slice(0, middle), now_ms)
        yield from _fitting(rows.slice(middle), now_ms)
    else:
        yield made


def _batch(rows: pa.RecordBatch, now_ms: int) -> Columns:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    pieces, body_size = _body(_binary(columns["body"], pa.binary()))
    for name, column in TEXTS.items():
        if name in columns:
            pieces += _text(column, Type.UTF8, _binary(columns[name], pa.utf8()))
    if "tag" in columns:
        pieces += _tags(columns["tag"])
    if "properties" in columns:
        properties, seals = take_seals(columns["properties"])
        pieces += _properties(properties)
        if seals:
            pieces += _text(Column.SEAL, Type.BINARY, pa.array(seals, pa.binary()))
    attributes = 0
    if "id" in columns:
        attributes |= Attribute.MERGED
        pieces += _text(Column.EXPLICIT_ID, Type.BINARY, ids(columns["id"]))
    if "born_at" in columns:
        born = pc.cast(columns["born_at"], pa.timestamp("us", tz="UTC")).cast(pa.int64())
        filled = pc.fill_null(born, now_ms * 1000).to_numpy(zero_copy_only=False) // 1000
        pieces.append(
            Section(Column.BORN, ColumnPart.VALUES, Type.INT64, filled.astype("<i8").tobytes())
        )
    if "deliver_at" in columns:
        pieces.append(_due(columns["deliver_at"]))
    return Columns(pieces, rows.num_rows, body_size, now_ms, attributes)


def _due(times: pa.Array) -> Section:
    """To the millisecond, never before its time."""
    us = pc.cast(times, pa.timestamp("us", tz="UTC")).cast(pa.int64())
    ms = -(-us.to_numpy(zero_copy_only=False) // 1000)
    return Section(Column.DUE, ColumnPart.VALUES, Type.INT64, ms.astype("<i8").tobytes())


def ids(texts: pa.Array) -> pa.Array:
    """Message ids from their text; those of 26 letters all at once."""
    if texts.null_count:
        raise BadRequest("the column 'id' has a null; leave the column out to get new ids")
    sizes = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    if (sizes != ID_TEXT_SIZE).any():
        return pa.array([_id(text) for text in texts.to_pylist()], pa.binary())
    plain = _binary(texts, pa.utf8())
    offsets = np.frombuffer(plain.buffers()[1], "<i4")
    start = int(offsets[plain.offset])
    letters = np.frombuffer(plain.buffers()[2], np.uint8)[start : start + 26 * len(plain)]
    values = _VALUES[letters].reshape(len(plain), ID_TEXT_SIZE)
    if (values == 255).any() or (values[:, 0] > 7).any():  # Not letters of ids, or 130 bits.
        return pa.array([_id(text) for text in texts.to_pylist()], pa.binary())
    bits = np.unpackbits(values, axis=1).reshape(len(plain), ID_TEXT_SIZE, 8)[:, :, 3:]
    packed = np.packbits(bits.reshape(len(plain), 130)[:, 2:], axis=1)
    places = np.arange(0, 16 * (len(plain) + 1), 16, dtype="<i4")
    return pa.Array.from_buffers(
        pa.binary(), len(plain), [None, pa.py_buffer(places), pa.py_buffer(packed)]
    )


def _id(text: str) -> bytes:
    if len(text) == ID_TEXT_SIZE:
        return id_from_text(text).to_bytes(16, "big")
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if not found or found.hex() != text.lower():
        raise BadRequest(f"{text[:100]!r} is not a message id")
    return found


def _binary(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column with plain 32-bit offsets, whatever Spark made of it."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if not (
        pa.types.is_binary(array.type)
        or pa.types.is_string(array.type)
        or pa.types.is_large_binary(array.type)
        or pa.types.is_large_string(array.type)
    ):
        raise BadRequest(f"a column of {array.type} where text or bytes are needed")
    return array if array.type == kind else pc.cast(array, kind)


def _cut(array: pa.Array) -> tuple[np.ndarray, memoryview]:
    """Offsets from 0 on, and exactly the bytes they speak of."""
    offsets = np.frombuffer(array.buffers()[1], "<i4")[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    low, high = int(offsets[0]), int(offsets[-1])
    view = memoryview(b"") if data is None else memoryview(data)[low:high]
    return (offsets - low).astype("<i4"), view


def _body(array: pa.Array) -> tuple[list[Section], int]:
    offsets, data = _cut(array)
    packed = Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets.tobytes())
    if len(data) > compression.MEAN_BODY_SIZE_MIN * len(array):
        smaller = compression.compress(bytes(data), offsets.tolist(), Encoding.ZSTD)
        if smaller is not None:
            table, compressed = smaller
            return [
                packed,
                Section(Column.BODY, ColumnPart.CHUNKS, Type.BINARY, table),
                Section(Column.BODY, ColumnPart.DATA, Type.BINARY, compressed, Encoding.ZSTD),
            ], len(data)
    return [packed, Section(Column.BODY, ColumnPart.DATA, Type.BINARY, data)], len(data)


def _validity(array: pa.Array, column: Column, kind: Type) -> list[Section]:
    if not array.null_count:
        return []
    present = pc.is_valid(array).to_numpy(zero_copy_only=False)
    bits = np.packbits(present, bitorder="little").tobytes()
    return [Section(column, ColumnPart.VALIDITY, kind, bits)]


def _text(column: Column, kind: Type, array: pa.Array) -> list[Section]:
    if array.null_count == len(array):
        return []
    offsets, data = _cut(array)
    return [
        *_validity(array, column, kind),
        Section(column, ColumnPart.OFFSETS, kind, offsets.tobytes()),
        Section(column, ColumnPart.DATA, kind, data),
    ]


def _tags(array: pa.Array) -> list[Section]:
    plain = _binary(array, pa.utf8())
    if plain.null_count == len(plain):
        return []
    coded = plain.dictionary_encode()
    codes = pc.fill_null(coded.indices, 0).to_numpy(zero_copy_only=False).astype("<i4")
    offsets, words = _cut(coded.dictionary)
    kind = Type.DICTIONARY
    return [
        *_validity(plain, Column.TAG, kind),
        Section(Column.TAG, ColumnPart.VALUES, kind, codes.tobytes()),
        Section(Column.TAG, ColumnPart.DICTIONARY_OFFSETS, kind, offsets.tobytes()),
        Section(Column.TAG, ColumnPart.DICTIONARY_DATA, kind, words),
    ]


def _properties(array: pa.Array) -> list[Section]:
    if not pa.types.is_map(array.type):
        raise BadRequest(f"the column 'properties' is {array.type}; it must be map<string,string>")
    present = pc.is_valid(array)
    valid = present.to_numpy(zero_copy_only=False)
    rows = array.filter(present)  # A copy without what lies before, after, or under a null.
    starts = np.frombuffer(rows.buffers()[1], "<i4")[: len(rows) + 1]
    sizes = np.zeros(len(array), np.int64)
    sizes[valid] = np.diff(starts)
    names, values = _binary(rows.keys, pa.utf8()), _binary(rows.items, pa.utf8())
    if not len(names):
        return []
    if values.null_count:
        raise BadRequest("a property is null; leave it out of the map instead")
    row_offsets = np.concatenate(([0], np.cumsum(sizes))).astype("<i4")
    name_offsets, name_data = _cut(names)
    value_offsets, value_data = _cut(values)
    parts: list[tuple[ColumnPart, Buffer]] = [
        (ColumnPart.OFFSETS, row_offsets.tobytes()),
        (ColumnPart.NAME_OFFSETS, name_offsets.tobytes()),
        (ColumnPart.NAME_DATA, name_data),
        (ColumnPart.VALUE_OFFSETS, value_offsets.tobytes()),
        (ColumnPart.VALUE_DATA, value_data),
        (ColumnPart.VALUE_TYPES, bytes([STRING]) * len(names)),
    ]
    return [Section(Column.PROPERTIES, part, Type.MAP, data) for part, data in parts]
