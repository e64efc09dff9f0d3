"""Merges chosen rows of several batches into one: columns are gathered, bodies are not looked at.

What a row says never changes: id, key, tag, properties, born time. What belongs to the batch it
came from is written into columns where the new batch can not say it: the id (unless the rows follow
each other in one batch), and on dispatch the application and address they came from. Bodies that
were compressed are compressed again. Columns unknown to this version survive by their Arrow type.
Work per column and source, never per row.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ternmq.batch import compression
from ternmq.batch.encoder import Origin, Section, assemble
from ternmq.batch.layout import Attribute, Column, ColumnPart, Encoding, Type
from ternmq.batch.rows.gather import (
    in_a_row,
    join_bytes,
    offsets_of,
    pack_bits,
    repeated,
    take_bytes,
    unpack_bits,
)
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.ids import RANDOM_BITS, ProducerId

_WIDTHS: dict[int, str] = {Type.INT64: "<i8", Type.UINT8: "u1"}
_KEPT = int(Attribute.EXPIRES | Attribute.RELATIVE)


class ChosenRows(NamedTuple):
    """Some rows of a batch, in the order they shall have."""

    view: BatchView
    rows: np.ndarray


def take(view: BatchView, rows: np.ndarray) -> bytearray:
    """The batch with these rows only, in this order; its stamp is left to the caller."""
    kept = in_a_row(rows)
    first = int(rows[0]) if kept else 0
    origin = Origin(topic=view.topic, app=view.app, producer=view.producer)
    return _build(
        [ChosenRows(view, rows)],
        origin=origin,
        first_sequence=view.first_sequence + first,
        attributes=view.attributes & (_KEPT | Attribute.MERGED),
        drop=frozenset(),
        with_ids=not kept,
        with_origins=False,
    )


def merge(sources: Sequence[ChosenRows], *, origin: Origin, first_sequence: int) -> bytearray:
    """A batch of a producer of our own: every row says its id and where it came from; not DUE."""
    return _build(
        sources,
        origin=origin,
        first_sequence=first_sequence,
        attributes=int(Attribute.MERGED),
        drop=frozenset({int(Column.DUE)}),
        with_ids=True,
        with_origins=True,
    )


def adopt(chosen: ChosenRows, *, producer: ProducerId, first_sequence: int) -> bytearray:
    """Rows of a committed half batch as a batch of their own, with their ids and due times, under
    another producer's numbers."""
    view = chosen.view
    return _build(
        [chosen],
        origin=Origin(topic=view.topic, app=view.app, producer=producer),
        first_sequence=first_sequence,
        attributes=view.attributes & _KEPT,
        drop=frozenset({int(Column.TRANSACTION)}),
        with_ids=True,
        with_origins=False,
    )


def _build(
    sources: Sequence[ChosenRows],
    *,
    origin: Origin,
    first_sequence: int,
    attributes: int,
    drop: frozenset[int],
    with_ids: bool,
    with_origins: bool,
) -> bytearray:
    pieces, body_size = _bodies(sources)
    kinds: dict[int, int] = {}
    for source in sources:
        for (column, _), (_, _, _, kind) in source.view.parts().items():
            kinds.setdefault(column, kind)
    born = _born(sources)
    done = {int(Column.BODY), int(Column.BORN)} | drop
    if with_ids:
        attributes |= Attribute.MERGED
        pieces += _ids(sources)
        done.add(int(Column.EXPLICIT_ID))
    if with_origins:
        pieces += _texts(sources, Column.ORIGIN_APP, Type.UTF8, lambda view: view.app.encode())
        pieces += _texts(sources, Column.ORIGIN_ADDRESS, Type.BINARY, _address)
        done |= {int(Column.ORIGIN_APP), int(Column.ORIGIN_ADDRESS)}
    for column, kind in kinds.items():
        if column not in done:
            pieces += _column(sources, column, kind)
    if Column.EXPIRE in kinds:
        attributes |= Attribute.EXPIRES
    if bool((born != born[0]).any()):
        pieces.append(Section(Column.BORN, ColumnPart.VALUES, Type.INT64, born.tobytes()))
    count = sum(len(source.rows) for source in sources)
    return assemble(pieces, count, body_size, origin, first_sequence, int(born[0]), int(attributes))


def _numbers(view: BatchView, column: int, part: ColumnPart, kind: str) -> np.ndarray:
    packed = view.buffer(column, part)
    if packed is None:
        raise Corrupt(f"column {column} lacks a buffer")
    return np.frombuffer(packed, dtype=kind)


def _bodies(sources: Sequence[ChosenRows]) -> tuple[list[Section], int]:
    parts = []
    compressed = False
    for view, rows in sources:
        offsets = _numbers(view, Column.BODY, ColumnPart.OFFSETS, "<i4")
        data = np.frombuffer(view.raw_bodies(), np.uint8)
        parts.append(take_bytes(offsets, data, rows))
        compressed |= view.parts()[Column.BODY, ColumnPart.DATA][2] != Encoding.PLAIN
    sizes = np.concatenate([sizes for sizes, _ in parts])
    offsets = offsets_of(sizes)
    joined = b"".join(data.tobytes() for _, data in parts)
    if compressed:
        smaller = compression.compress(joined, offsets.tolist(), Encoding.ZSTD)
        if smaller is not None:
            return [
                Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets.tobytes()),
                Section(Column.BODY, ColumnPart.CHUNKS, Type.BINARY, smaller[0]),
                Section(Column.BODY, ColumnPart.DATA, Type.BINARY, smaller[1], Encoding.ZSTD),
            ], len(joined)
    return [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, offsets.tobytes()),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, joined),
    ], len(joined)


def _born(sources: Sequence[ChosenRows]) -> np.ndarray:
    values = []
    for view, rows in sources:
        packed = view.buffer(Column.BORN, ColumnPart.VALUES)
        if packed is None:
            values.append(np.full(len(rows), view.base_born_ms, "<i8"))
        else:
            values.append(np.frombuffer(packed, "<i8")[rows])
    return np.concatenate(values)


def ids_of(view: BatchView, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sizes, bytes) of the ids of these rows: explicit ones, else made from the producer's."""
    if view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is None:
        return np.full(len(rows), 16, np.int64), _own_ids(view, rows).reshape(-1)
    valid = unpack_bits(view.buffer(Column.EXPLICIT_ID, ColumnPart.VALIDITY), view.count)
    if bool(valid[rows].all()):
        offsets = _numbers(view, Column.EXPLICIT_ID, ColumnPart.OFFSETS, "<i4")
        data = _numbers(view, Column.EXPLICIT_ID, ColumnPart.DATA, "u1")
        return take_bytes(offsets, data, rows)
    ids = [view.id_bytes(int(row)) for row in rows]  # Some have one and some not: rare.
    return np.array([len(i) for i in ids], np.int64), np.frombuffer(b"".join(ids), np.uint8)


def _own_ids(view: BatchView, rows: np.ndarray) -> np.ndarray:
    high = (view.producer.start_ms << RANDOM_BITS) | view.producer.random
    ids = np.empty((len(rows), 16), np.uint8)
    ids[:, :11] = np.frombuffer(high.to_bytes(11, "big"), np.uint8)
    numbers = (rows.astype(np.uint64) + np.uint64(view.first_sequence)).astype(">u8")
    ids[:, 11:] = numbers.view(np.uint8).reshape(-1, 8)[:, 3:]
    return ids


def _ids(sources: Sequence[ChosenRows]) -> list[Section]:
    offsets, data = join_bytes([ids_of(view, rows) for view, rows in sources])
    return [
        Section(Column.EXPLICIT_ID, ColumnPart.OFFSETS, Type.BINARY, offsets),
        Section(Column.EXPLICIT_ID, ColumnPart.DATA, Type.BINARY, data),
    ]


def _address(view: BatchView) -> bytes:
    stamp = view.stamp
    return stamp.client_ip + stamp.client_port.to_bytes(2, "big")


def _texts(
    sources: Sequence[ChosenRows],
    column: Column,
    kind: Type,
    otherwise: Callable[[BatchView], bytes],
) -> list[Section]:
    """A column that a source has, or one value for all of its rows."""
    parts = []
    for view, rows in sources:
        if view.buffer(column, ColumnPart.DATA) is None:
            parts.append(repeated(otherwise(view), len(rows)))
        else:
            offsets = _numbers(view, column, ColumnPart.OFFSETS, "<i4")
            parts.append(take_bytes(offsets, _numbers(view, column, ColumnPart.DATA, "u1"), rows))
    places, joined = join_bytes(parts)
    return [
        Section(column, ColumnPart.OFFSETS, kind, places),
        Section(column, ColumnPart.DATA, kind, joined),
    ]


def _column(sources: Sequence[ChosenRows], column: int, kind: int) -> list[Section]:
    present = [
        any(owner == column and place[3] == kind for (owner, _), place in view.parts().items())
        for view, _ in sources
    ]  # A column that this version does not know may have another type in another batch.
    valid = np.concatenate(
        [
            unpack_bits(view.buffer(column, ColumnPart.VALIDITY), view.count)[rows]
            if has
            else np.zeros(len(rows), bool)
            for (view, rows), has in zip(sources, present, strict=True)
        ]
    )
    if kind == Type.MAP:
        return _map(sources, column)  # A row without properties has none, not a null.
    bits = pack_bits(valid)
    pieces = [] if bits is None else [Section(column, ColumnPart.VALIDITY, kind, bits)]
    if kind in _WIDTHS:
        width = _WIDTHS[kind]
        values = [
            _numbers(view, column, ColumnPart.VALUES, width)[rows]
            if has
            else np.zeros(len(rows), width)
            for (view, rows), has in zip(sources, present, strict=True)
        ]
        data = np.concatenate(values).tobytes()
        return [*pieces, Section(column, ColumnPart.VALUES, kind, data)]
    if kind == Type.DICTIONARY:
        return pieces + _dictionary(sources, column, present)
    parts = [
        take_bytes(
            _numbers(view, column, ColumnPart.OFFSETS, "<i4"),
            _numbers(view, column, ColumnPart.DATA, "u1"),
            rows,
        )
        if has
        else repeated(b"", len(rows))
        for (view, rows), has in zip(sources, present, strict=True)
    ]
    offsets, data = join_bytes(parts)
    return [
        *pieces,
        Section(column, ColumnPart.OFFSETS, kind, offsets),
        Section(column, ColumnPart.DATA, kind, data),
    ]


def _dictionary(sources: Sequence[ChosenRows], column: int, present: list[bool]) -> list[Section]:
    known: dict[bytes, int] = {}
    codes = []
    for (view, rows), has in zip(sources, present, strict=True):
        if not has:
            codes.append(np.zeros(len(rows), "<i4"))
            continue
        places = _numbers(view, column, ColumnPart.DICTIONARY_OFFSETS, "<i4").tolist()
        data = view.buffer(column, ColumnPart.DICTIONARY_DATA)
        assert data is not None
        words = [bytes(data[a:b]) for a, b in itertools.pairwise(places)]
        moved = np.array([known.setdefault(word, len(known)) for word in words] or [0], "<i4")
        codes.append(moved[_numbers(view, column, ColumnPart.VALUES, "<i4")[rows]])
    sizes = np.array([len(word) for word in known], np.int64)
    kind = Type.DICTIONARY
    return [
        Section(column, ColumnPart.VALUES, kind, np.concatenate(codes).astype("<i4").tobytes()),
        Section(column, ColumnPart.DICTIONARY_OFFSETS, kind, offsets_of(sizes).tobytes()),
        Section(column, ColumnPart.DICTIONARY_DATA, kind, b"".join(known)),
    ]


def _map(sources: Sequence[ChosenRows], column: int) -> list[Section]:
    counts: list[np.ndarray] = []
    types: list[np.ndarray] = []
    names: list[tuple[np.ndarray, np.ndarray]] = []
    values: list[tuple[np.ndarray, np.ndarray]] = []
    for view, rows in sources:
        types_part = view.parts().get((column, ColumnPart.VALUE_TYPES))
        if types_part is None or types_part[3] != Type.MAP:
            counts.append(np.zeros(len(rows), np.int64))
            continue
        kinds = _numbers(view, column, ColumnPart.VALUE_TYPES, "u1")
        row_offsets = _numbers(view, column, ColumnPart.OFFSETS, "<i4")
        sizes, entries = take_bytes(row_offsets, np.arange(len(kinds), dtype=np.int64), rows)
        counts.append(sizes)
        for part, data, found in (
            (ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA, names),
            (ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA, values),
        ):
            offsets = _numbers(view, column, part, "<i4")
            found.append(take_bytes(offsets, _numbers(view, column, data, "u1"), entries))
        types.append(kinds[entries])
    name_offsets, name_data = join_bytes(names)
    value_offsets, value_data = join_bytes(values)
    parts = [
        (ColumnPart.OFFSETS, offsets_of(np.concatenate(counts)).tobytes()),
        (ColumnPart.NAME_OFFSETS, name_offsets),
        (ColumnPart.NAME_DATA, name_data),
        (ColumnPart.VALUE_OFFSETS, value_offsets),
        (ColumnPart.VALUE_DATA, value_data),
        (ColumnPart.VALUE_TYPES, np.concatenate(types).tobytes()),
    ]
    return [Section(column, part, Type.MAP, data) for part, data in parts]
