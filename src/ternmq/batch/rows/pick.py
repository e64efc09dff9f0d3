"""A few rows of a batch, under the numbers that they have there.

Retries are a few rows from all over a batch. `pick` makes a batch of just these, so that nobody
copies, sends, checks or reads the others. The numbers of the rows are not in it: the envelope that
it travels in says which they are (see `batch.envelope`), and `PickedView` is read by them, so a
sequence is still the base sequence plus the row. Message ids too are those of the whole batch.

For few rows: the work is per row. Compressed bodies are not picked, see `batch.rows.cut`.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ternmq.batch.layout import ROWS_MAX, Buffer, Column, ColumnPart, Encoding, Type
from ternmq.batch.properties import PropertyValue
from ternmq.batch.rows.cut import ROW_WIDTHS, CutPiece, reassemble
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.ids import explicit_id_text, id_to_text


def pick(batch: Buffer, selection: Sequence[tuple[int, int]]) -> bytearray | None:
    """A batch of these rows (ascending ranges) alone; None where bodies are compressed."""
    view = BatchView(batch)
    if (Column.BODY, ColumnPart.CHUNKS) in view.parts():
        return None
    rows = [row for first, end in selection for row in range(first, end)]
    kinds: dict[int, int] = {}
    for (column, _), (_, _, _, kind) in view.parts().items():
        kinds[column] = kind
    pieces: list[CutPiece] = []
    for column, kind in kinds.items():
        pieces += _picked(view, column, kind, rows)
    body = next(data for column, part, _, _, data in pieces if (column, part) == _BODY)
    return reassemble(batch, pieces, 0, len(rows), len(body))


_BODY = (Column.BODY, ColumnPart.DATA)


def _picked(view: BatchView, column: int, kind: int, rows: list[int]) -> list[CutPiece]:
    found: list[tuple[int, Buffer]] = []
    bits = view.buffer(column, ColumnPart.VALIDITY)
    if bits is not None:
        found.append((ColumnPart.VALIDITY, _picked_bits(bits, rows)))
    values, offsets = (
        view.buffer(column, ColumnPart.VALUES),
        view.buffer(column, ColumnPart.OFFSETS),
    )
    if kind == Type.MAP and offsets is not None:
        found += _picked_map(view, column, offsets.cast("i"), rows)
    elif values is not None and kind in ROW_WIDTHS:
        width = ROW_WIDTHS[kind]
        taken = b"".join([values[row * width : (row + 1) * width] for row in rows])
        found.append((ColumnPart.VALUES, taken))
        for part in (ColumnPart.DICTIONARY_OFFSETS, ColumnPart.DICTIONARY_DATA):
            words = view.buffer(column, part)
            if words is not None:
                found.append((part, words))
    elif offsets is not None:
        data = view.buffer(column, ColumnPart.DATA)
        assert data is not None
        places = offsets.cast("i")
        bounds = [(places[row], places[row + 1]) for row in rows]
        found.append((ColumnPart.OFFSETS, _packed([high - low for low, high in bounds])))
        found.append((ColumnPart.DATA, b"".join([data[low:high] for low, high in bounds])))
    return [(column, part, kind, Encoding.PLAIN, data) for part, data in found]


def _picked_bits(bits: Buffer, rows: list[int]) -> bytes:
    packed = bytearray((len(rows) + 7) // 8)
    for at, row in enumerate(rows):
        if bits[row >> 3] >> (row & 7) & 1:
            packed[at >> 3] |= 1 << (at & 7)
    return bytes(packed)


def _picked_map(
    view: BatchView, column: int, places: memoryview, rows: list[int]
) -> list[tuple[int, Buffer]]:
    bounds = [(places[row], places[row + 1]) for row in rows]
    found: list[tuple[int, Buffer]] = [(ColumnPart.OFFSETS, _packed([b - a for a, b in bounds]))]
    for offsets_part, data_part in (
        (ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA),
        (ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA),
    ):
        offsets, data = view.buffer(column, offsets_part), view.buffer(column, data_part)
        assert offsets is not None
        assert data is not None
        moved, texts = _moved(offsets.cast("i"), data, bounds)
        found += [(offsets_part, moved), (data_part, texts)]
    types = view.buffer(column, ColumnPart.VALUE_TYPES)
    assert types is not None
    return [*found, (ColumnPart.VALUE_TYPES, b"".join([types[a:b] for a, b in bounds]))]


def _moved(
    offsets: memoryview, data: memoryview, bounds: list[tuple[int, int]]
) -> tuple[bytes, bytes]:
    """The values between bounds, one behind the other, and their offsets."""
    moved, texts, at = [0], [], 0
    for first, end in bounds:
        places = offsets[first : end + 1].tolist()
        low, high = places[0], places[-1]
        moved += [place - low + at for place in places[1:]]
        texts.append(data[low:high])
        at += high - low
    return struct.pack(f"<{len(moved)}i", *moved), b"".join(texts)


def _packed(sizes: list[int]) -> bytes:
    """Offsets of values of these sizes."""
    return struct.pack(f"<{len(sizes) + 1}i", 0, *accumulate(sizes))


class PickedView(BatchView):
    """A picked batch, read by the row numbers of the batch that it was picked from."""

    __slots__ = ("_places",)

    def __init__(self, data: Buffer, selection: Sequence[tuple[int, int]]) -> None:
        super().__init__(data)
        rows: list[int] = []
        for first, end in selection:
            if not (rows[-1] if rows else -1) < first < end <= ROWS_MAX:
                raise Corrupt("the rows of a picked batch are not in order")
            rows += range(first, end)
        if len(rows) != self.count:
            raise Corrupt(f"a picked batch has {self.count} rows, not {len(rows)}")
        self._places = {row: at for at, row in enumerate(rows)}

    def place(self, row: int) -> int:
        return self._places[row]

    def sequences(self) -> np.ndarray:
        return self.base_sequence + np.fromiter(self._places, np.int64, self.count)

    def bodies_of(self, first: int, end: int) -> list[bytes]:
        at = self._places[first]
        return self.bodies()[at : at + end - first]

    def body(self, row: int) -> bytes:
        return super().body(self._places[row])

    def key(self, row: int) -> str | None:
        return super().key(self._places[row])

    def origin_app(self, row: int) -> str:
        return super().origin_app(self._places[row])

    def order_key(self, row: int) -> str | None:
        return super().order_key(self._places[row])

    def tag(self, row: int) -> str | None:
        return super().tag(self._places[row])

    def properties(self, row: int) -> dict[str, PropertyValue]:
        return super().properties(self._places[row])

    def born_at_ms(self, row: int) -> int:
        return super().born_at_ms(self._places[row])

    def priority(self, row: int) -> int:
        return super().priority(self._places[row])

    def expire_at_ms(self, row: int) -> int | None:
        return super().expire_at_ms(self._places[row])

    def message_id(self, row: int) -> str:
        explicit = self._binary(Column.EXPLICIT_ID)[self._places[row]]
        if explicit is not None:
            return explicit_id_text(explicit)
        return id_to_text(self._producer.message_id(self._header.first_sequence + row))

    def id_bytes(self, row: int) -> bytes:
        explicit = self._binary(Column.EXPLICIT_ID)[self._places[row]]
        if explicit is not None:
            return bytes(explicit)
        return self._producer.message_id(self._header.first_sequence + row).to_bytes(16, "big")
