"""Rows of stored batches that cannot be read whole: what there is of them, and a mark.

Releases before 0.2 stored batches that are refused at the door today: bodies that do not
decompress, keys that are no text, columns without their offsets. One such row must not end a
query or an archive job. It stays a row, so that counts add up: what cannot be read is null, or
empty where the schema allows no null, and the property `%unreadable` names the columns. Text is
given up row by row, everything else for the whole batch. Slow, and only for such batches.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from ternmq.batch.layout import DUE_MAX_MS, Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.core.ids import id_to_text
from ternmq.rpc.address import packed_address_text

MARK = "%unreadable"
TEXTS = {"key": Column.KEY, "order_key": Column.ORDER_KEY}
_EMPTY = {"body": b"", "properties": [], "size": 0, "app": ""}


class UnreadableRows:
    """Which rows of one batch lack which columns."""

    def __init__(self) -> None:
        self._lacking: dict[int, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._lacking)

    def add(self, name: str, rows: Iterable[int]) -> None:
        for row in rows:
            self._lacking.setdefault(row, []).append(name)

    def count(self, first: int, end: int) -> int:
        """How many there are among these rows."""
        return sum(first <= row < end for row in self._lacking)

    def names(self) -> list[str]:
        return sorted({name for names in self._lacking.values() for name in names})

    def noted(self, properties: pa.Array) -> pa.Array:
        """The properties of all rows, with the mark on these."""
        rows = properties.to_pylist()
        for row, names in self._lacking.items():
            rows[row] = [*rows[row], (MARK, ", ".join(names))]
        return pa.array(rows, properties.type)


def column(view: BatchView, field: pa.Field, bad: UnreadableRows) -> pa.Array:
    """What there is of a column that the fast way could not read."""
    name, count = field.name, view.count
    if name in TEXTS and (values := _slices(view, TEXTS[name])) is not None:
        return _decoded(name, values, field.type, bad)
    if name == "born_at" and (born := _dates(view, bad)) is not None:
        return pa.array(born * 1000).cast(field.type)
    bad.add(name, range(count))
    if name == "id":
        return pa.array([_own_id(view, row) for row in range(count)], field.type)
    if name in ("born_at", "stored_at"):
        return pa.array(np.full(count, _date(view.stored_at_ms) * 1000)).cast(field.type)
    if name == "client_address":
        address = packed_address_text(view.stamp.client_ip, view.stamp.client_port)
        return pa.repeat(pa.scalar(address, field.type), count)
    return pa.array([_EMPTY.get(name)] * count, field.type)


def _slices(view: BatchView, column: Column) -> list[bytes | None] | None:
    """The values as bytes, each on its own; None if they are not to be found."""
    parts = [view.buffer(column, part) for part in (ColumnPart.OFFSETS, ColumnPart.DATA)]
    bits = view.buffer(column, ColumnPart.VALIDITY)
    if None in parts:
        return None
    buffers = [None if part is None else pa.py_buffer(part) for part in (bits, *parts)]
    try:
        found = pa.Array.from_buffers(pa.binary(), view.count, buffers)
        found.validate(full=True)
    except (pa.ArrowException, ValueError):
        return None
    return found.to_pylist()  # type: ignore[no-any-return]


def _decoded(
    name: str, values: list[bytes | None], kind: pa.DataType, bad: UnreadableRows
) -> pa.Array:
    texts: list[str | None] = []
    for row, value in enumerate(values):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            bad.add(name, [row])
    return pa.array(texts, kind)


def _dates(view: BatchView, bad: UnreadableRows) -> np.ndarray | None:
    """When rows were made; a time that is no date is the time at which the row was stored."""
    try:
        born = np.array([view.born_at_ms(row) for row in range(view.count)], np.int64)
    except Exception:
        return None
    odd = (born < 0) | (born > DUE_MAX_MS)
    bad.add("born_at", np.flatnonzero(odd).tolist())
    return np.where(odd, _date(view.stored_at_ms), born)


def _date(ms: int) -> int:
    return ms if 0 <= ms <= DUE_MAX_MS else 0


def _own_id(view: BatchView, row: int) -> str:
    return id_to_text(int.from_bytes(view.own_id(row), "big"))
