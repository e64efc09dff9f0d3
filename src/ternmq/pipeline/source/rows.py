"""Delivered batches as Arrow record batches in the schema that Spark expects.

Bodies, keys and properties point into the received bytes; constant columns and ids are made by
numpy, never row by row. An id is text whose last eight letters are the forty bits of the sequence,
so a batch's ids are one prefix and a table look-up.

Every array that points into received bytes is validated before anything reads it. A column that
cannot be read (releases before 0.2 stored such batches) never ends a query: `unreadable_rows.py`
reads what there is of it, and its rows are marked and counted.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import DUE_MAX_MS, Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.ids import ID_TEXT_SIZE, explicit_id_text
from ternmq.core.log import get_logger
from ternmq.pipeline.source import unreadable_rows
from ternmq.pipeline.source.sealed_bodies import opened_bodies, with_seals
from ternmq.pipeline.source.unreadable_rows import UnreadableRows
from ternmq.rpc.address import ADDRESS_SIZE, packed_address_text, unpacked_address_text

log = get_logger()

ROWS_MIN = 8_192  # Smaller batches are put together: Spark pays for each.
SEQUENCE_LETTERS = 8
ID_SIZE = 16
_LETTERS = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_SHIFTS = np.arange(35, -1, -5, dtype=np.uint64)


class RowMaker:
    """Makes the rows of one place, in the columns of a schema."""

    def __init__(self, schema: pa.Schema, *, topic: str, broker_group: str) -> None:
        self._schema = schema
        self._constants = {"topic": topic, "broker_group": broker_group}
        self.unreadable = 0
        """Rows so far of which something could not be read."""

    def record_batches(self, pieces: Iterator[list[Envelope]]) -> Iterator[pa.RecordBatch]:
        """Everything, in order, in batches that are worth Spark's while."""
        waiting: list[pa.RecordBatch] = []
        count = 0
        for envelopes in pieces:
            for envelope in envelopes:
                made, rows = self._made(envelope.batch)
                if rows:
                    self._tell(rows, envelope)
                for first, end in envelope.selection:
                    waiting.append(made.slice(first, end - first))
                    count += end - first
            if count >= ROWS_MIN:
                yield _joined(waiting)
                waiting, count = [], 0
        if waiting:
            yield _joined(waiting)

    def _made(self, view: BatchView) -> tuple[pa.RecordBatch, UnreadableRows]:
        bad = UnreadableRows()
        arrays: dict[str, pa.Array] = {}
        for field in self._schema:
            try:
                if field.name == "body" and view.opened is not None:
                    arrays["body"] = opened_bodies(view, bad)
                    continue
                arrays[field.name] = found = self._column(view, field)
                if len(found) != view.count:
                    raise Corrupt(f"column {field.name} has {len(found)} rows, not {view.count}")
            except Exception:
                arrays[field.name] = unreadable_rows.column(view, field, bad)
        if bad and "properties" in arrays:
            arrays["properties"] = bad.noted(arrays["properties"])
        if view.sealed and "properties" in arrays:
            arrays["properties"] = with_seals(arrays["properties"], view)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=self._schema), bad

    def _tell(self, rows: UnreadableRows, envelope: Envelope) -> None:
        count = sum(rows.count(first, end) for first, end in envelope.selection)
        first_time, self.unreadable = not self.unreadable, self.unreadable + count
        if count and first_time:
            log.warning(
                "messages that cannot be read whole are marked",
                topic=self._constants["topic"],
                sequence=envelope.batch.base_sequence,
                lacking=", ".join(rows.names()),
            )

    def _column(self, view: BatchView, field: pa.Field) -> pa.Array:
        name, count = field.name, view.count
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name], field.type), count)
        if name == "id":
            return ids(view)
        if name == "sequence":
            return pa.array(np.arange(view.base_sequence, view.base_sequence + count))
        if name == "size":
            return pa.array(np.diff(_offsets(view, Column.BODY, ColumnPart.OFFSETS)), field.type)
        if name == "body":
            return _bodies(view)
        if name == "key":
            return _text(view, Column.KEY)
        if name == "order_key":
            return _text(view, Column.ORDER_KEY)
        if name == "tag":
            return _tags(view)
        if name == "properties":
            return _properties(view, field.type)
        if name == "born_at":
            return _times(_born(view), field.type)
        if name == "stored_at":
            return _times(np.full(count, view.stored_at_ms, np.int64), field.type)
        if name == "app":
            return _or_constant(view, Column.ORIGIN_APP, view.app)
        assert name == "client_address"
        address = packed_address_text(view.stamp.client_ip, view.stamp.client_port)
        return _addresses(view, address)


def ids(view: BatchView) -> pa.Array:
    """The message ids as text."""
    if view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is not None:
        return _explicit_ids(view)
    prefix = view.message_id(0)[:-SEQUENCE_LETTERS].encode()
    first = view.first_sequence
    numbers = np.arange(first, first + view.count, dtype=np.uint64)
    letters = np.empty((view.count, ID_TEXT_SIZE), np.uint8)
    letters[:, :-SEQUENCE_LETTERS] = np.frombuffer(prefix, np.uint8)
    letters[:, -SEQUENCE_LETTERS:] = _LETTERS[(numbers[:, None] >> _SHIFTS) & np.uint64(31)]
    offsets = np.arange(0, (view.count + 1) * ID_TEXT_SIZE, ID_TEXT_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.utf8(), view.count, buffers)


def _explicit_ids(view: BatchView) -> pa.Array:
    """Where every row has one of 16 bytes, all at once: 130 bits are 26 letters."""
    offsets, data = (
        view.buffer(Column.EXPLICIT_ID, ColumnPart.OFFSETS),
        view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA),
    )
    assert offsets is not None and data is not None
    usual = bool((np.diff(np.frombuffer(offsets, "<i4")) == ID_SIZE).all())
    if not usual or view.buffer(Column.EXPLICIT_ID, ColumnPart.VALIDITY) is not None:
        return pa.array([explicit_id_text(view.id_bytes(row)) for row in range(view.count)])
    values = np.frombuffer(data, np.uint8, ID_SIZE * view.count).reshape(view.count, ID_SIZE)
    bits = np.zeros((view.count, 5 * ID_TEXT_SIZE), np.uint8)
    bits[:, 2:] = np.unpackbits(values, axis=1)
    fives = np.packbits(bits.reshape(view.count, ID_TEXT_SIZE, 5), axis=2)[:, :, 0] >> 3
    places = np.arange(0, (view.count + 1) * ID_TEXT_SIZE, ID_TEXT_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(_LETTERS[fives])]
    return pa.Array.from_buffers(pa.utf8(), view.count, buffers)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _offsets(view: BatchView, column: Column, part: ColumnPart) -> np.ndarray:
    packed = view.buffer(column, part)
    if packed is None:
        raise Corrupt(f"column {column.name.lower()} lacks its offsets")
    return np.frombuffer(packed, "<i4")


def _bodies(view: BatchView) -> pa.Array:
    offsets = pa.py_buffer(view.buffer(Column.BODY, ColumnPart.OFFSETS))
    data = pa.py_buffer(view.raw_bodies())
    return checked(pa.Array.from_buffers(pa.binary(), view.count, [None, offsets, data]))


def checked(array: pa.Array) -> pa.Array:
    """Bytes from outside: nothing may look at them through an array before this has."""
    array.validate(full=True)
    return array


def _validity(view: BatchView, column: Column) -> pa.Buffer | None:
    bits = view.buffer(column, ColumnPart.VALIDITY)
    return None if bits is None else pa.py_buffer(bits)


def _text(view: BatchView, column: Column) -> pa.Array:
    data = view.buffer(column, ColumnPart.DATA)
    if data is None:
        return pa.nulls(view.count, pa.utf8())
    offsets = pa.py_buffer(view.buffer(column, ColumnPart.OFFSETS))
    buffers = [_validity(view, column), offsets, pa.py_buffer(data)]
    return checked(pa.Array.from_buffers(pa.utf8(), view.count, buffers))


def _or_constant(view: BatchView, column: Column, constant: str) -> pa.Array:
    if view.buffer(column, ColumnPart.DATA) is None:
        return pa.repeat(pa.scalar(constant, pa.utf8()), view.count)
    return _text(view, column).fill_null(constant)


def _addresses(view: BatchView, constant: str) -> pa.Array:
    """Packed addresses as text; a batch has few different ones, so each is made once."""
    data = view.buffer(Column.ORIGIN_ADDRESS, ColumnPart.DATA)
    if data is None:
        return pa.repeat(pa.scalar(constant, pa.utf8()), view.count)
    offsets = pa.py_buffer(view.buffer(Column.ORIGIN_ADDRESS, ColumnPart.OFFSETS))
    buffers = [_validity(view, Column.ORIGIN_ADDRESS), offsets, pa.py_buffer(data)]
    packed = checked(pa.Array.from_buffers(pa.binary(), view.count, buffers)).dictionary_encode()
    texts = [
        unpacked_address_text(each) if len(each) == ADDRESS_SIZE else constant
        for each in packed.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.utf8()).take(packed.indices).fill_null(constant)


def _tags(view: BatchView) -> pa.Array:
    words = view.buffer(Column.TAG, ColumnPart.DICTIONARY_DATA)
    if words is None:
        return pa.nulls(view.count, pa.utf8())
    offsets = view.buffer(Column.TAG, ColumnPart.DICTIONARY_OFFSETS)
    assert offsets is not None
    dictionary = checked(
        pa.Array.from_buffers(
            pa.utf8(), len(offsets) // 4 - 1, [None, pa.py_buffer(offsets), pa.py_buffer(words)]
        )
    )
    values = pa.py_buffer(view.buffer(Column.TAG, ColumnPart.VALUES))
    codes = pa.Array.from_buffers(pa.int32(), view.count, [_validity(view, Column.TAG), values])
    return dictionary.take(checked(codes))


def _properties(view: BatchView, kind: pa.MapType) -> pa.Array:
    column = Column.PROPERTIES
    types = view.buffer(column, ColumnPart.VALUE_TYPES)
    if types is None:
        offsets = pa.array(np.zeros(view.count + 1, np.int32))
        return pa.MapArray.from_arrays(
            offsets, pa.array([], pa.utf8()), pa.array([], pa.utf8())
        ).cast(kind)
    total = len(types)

    def strings(places: ColumnPart, data: ColumnPart) -> pa.Array:
        found = [
            None,
            pa.py_buffer(view.buffer(column, places)),
            pa.py_buffer(view.buffer(column, data)),
        ]
        return checked(pa.Array.from_buffers(pa.utf8(), total, found))

    names = strings(ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA)
    values = strings(ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA)
    offsets = pa.array(_offsets(view, column, ColumnPart.OFFSETS))
    return checked(pa.MapArray.from_arrays(offsets, names, values)).cast(kind)


def _born(view: BatchView) -> np.ndarray:
    values = view.buffer(Column.BORN, ColumnPart.VALUES)
    if values is None:
        return np.full(view.count, view.base_born_ms, np.int64)
    born = np.frombuffer(values, "<i8")
    bits = view.buffer(Column.BORN, ColumnPart.VALIDITY)
    if bits is None:
        return born
    valid = np.unpackbits(np.frombuffer(bits, np.uint8), count=view.count, bitorder="little")
    return np.where(valid.astype(bool), born, view.base_born_ms)


def _times(ms: np.ndarray, kind: Any) -> pa.Array:
    if len(ms) and not (int(ms.min()) >= 0 and int(ms.max()) <= DUE_MAX_MS):
        raise Corrupt("a time is no date")
    return pa.array(ms * 1000).cast(kind)
