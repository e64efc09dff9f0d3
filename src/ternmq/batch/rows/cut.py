"""Cuts rows out of a batch: the result is a batch again.

Buffers are cut, values are not touched: offsets are rebased, bitmaps shifted, compressed bodies
taken chunk by chunk (so the cut may hold a few more rows than asked for; the delivery envelope
says which rows count). Sequences move with the rows, so row 0 of the cut knows its own sequence
and message id. The checksums are made anew: they vouch for the cut, the whole batch keeps the
producer's. Columns are cut by their Arrow type, so columns unknown to this version survive.

A few rows from all over a batch (retries, a filter that drops most) are not next to each other:
`thin` keeps every row and drops the bodies of those that are not wanted. `batch.rows.pick` drops
the rows themselves, where the reader knows about it.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from ternmq.batch.compression import CHUNK
from ternmq.batch.layout import (
    COUNT,
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    FIXED_SIZE,
    FRAMING,
    MAGIC,
    PRODUCER,
    PRODUCER_CRC_AT,
    STAMP,
    STAMP_END,
    STAMP_START,
    VERSION,
    Buffer,
    Column,
    ColumnPart,
    Encoding,
    Type,
    stamp_crc,
)
from ternmq.batch.view import BatchView
from ternmq.core.units import align8

ROW_WIDTHS: dict[int, int] = {Type.INT64: 8, Type.UINT8: 1, Type.DICTIONARY: 4}
CutPiece = tuple[int, int, int, int, Buffer]  # column, part, type, encoding, bytes


class CutBatch(NamedTuple):
    """A smaller batch, and which row of the original its row 0 is."""

    batch: bytearray
    first_row: int


def cut(batch: Buffer, first: int, end: int) -> CutBatch:
    """A batch that holds rows `first` to `end` of this one, and perhaps some around them."""
    view = BatchView(batch)
    assert 0 <= first < end <= view.count
    first, end = _chunk_bounds(view, first, end)
    pieces: list[CutPiece] = []
    columns = dict.fromkeys(column for column, _ in view.parts())
    for column in columns:
        pieces += _cut_column(view, column, first, end)
    body_offsets = _offsets(view, Column.BODY, ColumnPart.OFFSETS)
    body_size = int(body_offsets[end] - body_offsets[first])
    return CutBatch(reassemble(batch, pieces, first, end - first, body_size), first)


def project(batch: Buffer, columns: Container[int]) -> bytearray:
    """The batch with these columns only. Body offsets stay, so that sizes are always known."""
    view = BatchView(batch)
    pieces: list[CutPiece] = []
    for (column, part), (_, _, encoding, kind) in view.parts().items():
        if column in columns or (column, part) == (Column.BODY, ColumnPart.OFFSETS):
            data = view.buffer(column, part)
            assert data is not None
            pieces.append((column, part, kind, encoding, data))
    offsets = _offsets(view, Column.BODY, ColumnPart.OFFSETS)
    return reassemble(batch, pieces, 0, view.count, int(offsets[-1]))


def thin(batch: Buffer, selection: Sequence[tuple[int, int]]) -> bytearray:
    """The batch with the bodies of these rows (ascending ranges) and perhaps of some around them;
    the bodies of others are empty. All else is as it was, so row numbers stay."""
    view = BatchView(batch)
    table = view.buffer(Column.BODY, ColumnPart.CHUNKS)
    offsets = _offsets(view, Column.BODY, ColumnPart.OFFSETS)
    data = view.buffer(Column.BODY, ColumnPart.DATA)
    assert data is not None
    replaced: dict[int, Buffer] = {}
    if table is None:
        kept = [(first, end) for first, end in selection]
        places = offsets[np.array(kept)].tolist()
        replaced[ColumnPart.DATA] = b"".join([data[low:high] for low, high in places])
    else:
        chunks = _wanted_chunks(table, selection, view.count)
        kept = [(first, end) for first, end, _ in chunks]
        replaced[ColumnPart.DATA] = b"".join(
            [data[at : at + size] for _, _, (_, at, size, _) in chunks]
        )
        replaced[ColumnPart.CHUNKS] = _packed_chunks([chunk for _, _, chunk in chunks])
    marks = np.zeros(view.count + 1, dtype=np.int8)
    bounds = np.array(kept)
    marks[bounds[:, 0]] += 1
    marks[bounds[:, 1]] -= 1
    moved = np.zeros(view.count + 1, dtype="<i4")
    np.cumsum(np.diff(offsets) * np.cumsum(marks[:-1], dtype=np.int8), out=moved[1:])
    replaced[ColumnPart.OFFSETS] = moved.tobytes()
    pieces: list[CutPiece] = []
    for (column, part), (_, _, encoding, kind) in view.parts().items():
        piece = replaced.get(part) if column == Column.BODY else None
        piece = view.buffer(column, part) if piece is None else piece
        assert piece is not None
        pieces.append((column, part, kind, encoding, piece))
    return reassemble(batch, pieces, 0, view.count, int(moved[-1]))


def _wanted_chunks(
    table: Buffer, selection: Sequence[tuple[int, int]], count: int
) -> list[tuple[int, int, tuple[int, ...]]]:
    """Chunks that hold wanted rows, with their first row and end."""
    chunks = list(CHUNK.iter_unpack(table))
    ends = [chunk[0] for chunk in chunks[1:]] + [count]
    wanted: list[tuple[int, int, tuple[int, ...]]] = []
    at = 0
    for chunk, end in zip(chunks, ends, strict=True):
        while at < len(selection) and selection[at][1] <= chunk[0]:
            at += 1
        if at < len(selection) and selection[at][0] < end:
            wanted.append((chunk[0], end, chunk))
    return wanted


def _packed_chunks(chunks: Sequence[tuple[int, ...]]) -> bytes:
    """The table of chunks when only these are left, one behind the other."""
    packed = bytearray()
    at = 0
    for row, _, size, raw_size in chunks:
        packed += CHUNK.pack(row, at, size, raw_size)
        at += size
    return bytes(packed)


def _chunk_bounds(view: BatchView, first: int, end: int) -> tuple[int, int]:
    """Widen to whole chunks where bodies are compressed."""
    table = view.buffer(Column.BODY, ColumnPart.CHUNKS)
    if table is None:
        return first, end
    starts = [chunk[0] for chunk in CHUNK.iter_unpack(table)]
    low = max(start for start in starts if start <= first)
    high = min((start for start in starts if start >= end), default=view.count)
    return low, high


def _cut_column(view: BatchView, column: int, first: int, end: int) -> list[CutPiece]:
    parts = {part: place for (owner, part), place in view.parts().items() if owner == column}
    kind = next(iter(parts.values()))[3]
    pieces: list[CutPiece] = []
    validity = view.buffer(column, ColumnPart.VALIDITY)
    if validity is not None:
        bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=view.count, bitorder="little")
        packed = np.packbits(bits[first:end], bitorder="little").tobytes()
        pieces.append((column, ColumnPart.VALIDITY, kind, Encoding.PLAIN, packed))
    if ColumnPart.VALUES in parts and kind in ROW_WIDTHS:
        width = ROW_WIDTHS[kind]
        values = view.buffer(column, ColumnPart.VALUES)
        assert values is not None
        pieces.append(
            (column, ColumnPart.VALUES, kind, Encoding.PLAIN, values[first * width : end * width])
        )
        for part in (ColumnPart.DICTIONARY_OFFSETS, ColumnPart.DICTIONARY_DATA):
            words = view.buffer(column, part)
            if words is not None:
                pieces.append((column, part, kind, Encoding.PLAIN, words))
    elif kind == Type.MAP:
        pieces += _cut_map(view, column, first, end)
    elif ColumnPart.OFFSETS in parts and ColumnPart.DATA in parts:
        pieces += _cut_binary(view, column, kind, first, end)
    return pieces


def _cut_binary(view: BatchView, column: int, kind: int, first: int, end: int) -> list[CutPiece]:
    offsets = _offsets(view, column, ColumnPart.OFFSETS)
    low, high = int(offsets[first]), int(offsets[end])
    data = view.buffer(column, ColumnPart.DATA)
    assert data is not None
    encoding = view.parts()[column, ColumnPart.DATA][2]
    rebased = (offsets[first : end + 1] - low).astype("<i4").tobytes()
    pieces: list[CutPiece] = [(column, ColumnPart.OFFSETS, kind, Encoding.PLAIN, rebased)]
    if encoding == Encoding.PLAIN:
        return [*pieces, (column, ColumnPart.DATA, kind, encoding, data[low:high])]
    table = view.buffer(column, ColumnPart.CHUNKS)
    assert table is not None
    chunks = [chunk for chunk in CHUNK.iter_unpack(table) if first <= chunk[0] < end]
    base = chunks[0][1]
    moved = b"".join(CHUNK.pack(row - first, at - base, size, raw) for row, at, size, raw in chunks)
    data_end = chunks[-1][1] + chunks[-1][2]
    return [
        *pieces,
        (column, ColumnPart.CHUNKS, kind, Encoding.PLAIN, moved),
        (column, ColumnPart.DATA, kind, encoding, data[base:data_end]),
    ]


def _cut_map(view: BatchView, column: int, first: int, end: int) -> list[CutPiece]:
    rows = _offsets(view, column, ColumnPart.OFFSETS)
    low, high = int(rows[first]), int(rows[end])
    pieces: list[CutPiece] = [
        (
            column,
            ColumnPart.OFFSETS,
            Type.MAP,
            0,
            (rows[first : end + 1] - low).astype("<i4").tobytes(),
        )
    ]
    for places, data in (
        (ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA),
        (ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA),
    ):
        offsets = _offsets(view, column, places)
        text = view.buffer(column, data)
        assert text is not None
        start, stop = int(offsets[low]), int(offsets[high])
        rebased = (offsets[low : high + 1] - start).astype("<i4").tobytes()
        pieces.append((column, places, Type.MAP, 0, rebased))
        pieces.append((column, data, Type.MAP, 0, text[start:stop]))
    types = view.buffer(column, ColumnPart.VALUE_TYPES)
    assert types is not None
    pieces.append((column, ColumnPart.VALUE_TYPES, Type.MAP, 0, types[low:high]))
    return pieces


def _offsets(view: BatchView, column: int, part: int) -> np.ndarray:
    packed = view.buffer(column, part)
    assert packed is not None
    return np.frombuffer(packed, dtype="<i4")


def reassemble(
    original: Buffer, pieces: list[CutPiece], first: int, count: int, body_size: int
) -> bytearray:
    """The header of the original with the counts, sequences and checksums of the cut."""
    producer = list(PRODUCER.unpack_from(original, PRODUCER_CRC_AT))
    names_end = align8(FIXED_SIZE + producer[10] + producer[11])
    header_size = at = names_end + DIRECTORY_ENTRY_SIZE * len(pieces)
    directory: list[bytes] = []
    buffers: list[Buffer] = []
    for column, part, kind, encoding, data in pieces:
        directory.append(DIRECTORY.pack(column, part, kind, encoding, at, len(data)))
        buffers += [data, bytes(-len(data) & 7)]
        at += align8(len(data))
    producer[2], producer[3], producer[12] = count, body_size, len(pieces)
    producer[6] += first
    batch = bytearray().join(
        (
            FRAMING.pack(MAGIC, VERSION, header_size, at, 0),
            memoryview(original)[STAMP_START:STAMP_END],
            PRODUCER.pack(*producer),
            memoryview(original)[FIXED_SIZE:names_end],
            *directory,
            *buffers,
        )
    )
    stamp = list(STAMP.unpack_from(batch, STAMP_START))
    stamp[2] += first
    STAMP.pack_into(batch, STAMP_START, *stamp)
    COUNT.pack_into(batch, 12, stamp_crc(batch))
    COUNT.pack_into(batch, PRODUCER_CRC_AT, crc32c(memoryview(batch)[PRODUCER_CRC_AT + 4 :]))
    return batch
