"""The columns a selector asks for: one list per property and type, one entry per row.

A selector knows the type it compares with, so a column holds the values of that type only:

    NUMBER   int or float; NaN where the row has no number by that name
    STRING   UTF-8 bytes (they sort, begin and end as the text does); None where there is none
    BOOLEAN  True or False; None likewise
    PRESENT  whether the row has a value of any type

Other types, NaN, and values that do not read as their type are in no column but PRESENT: comparing
them is unknown. Only properties that are asked for are read: in large batches numpy finds their
entries, in small ones, where its fixed costs would weigh more, a loop does. Never builds a dict per
row, never decodes text. Raises `Corrupt` where buffers do not fit together.
"""

import itertools
import math
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.properties import BOOLEAN, FLOAT, INTEGER, STRING
from ternmq.batch.selector.tags import read_tags, valid_rows
from ternmq.batch.selector.terms import Name
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt

SMALL = 256  # Below this many entries a Python loop beats numpy's fixed costs.
NAN = math.nan

Values = list[Any]


class ValueKind(Enum):
    """What a column holds, and what stands in it for a row that has none."""

    NUMBER = "n"
    STRING = "s"
    BOOLEAN = "b"
    PRESENT = "p"


_ABSENT: dict[ValueKind, object] = {
    ValueKind.NUMBER: NAN,
    ValueKind.STRING: None,
    ValueKind.BOOLEAN: None,
    ValueKind.PRESENT: False,
}


class _Entries(NamedTuple):
    """The values of one property: whose they are, their type bytes, where their texts lie."""

    rows: list[int]
    types: bytes
    starts: list[int]
    ends: list[int]


_NO_ENTRIES = _Entries([], b"", [], [])


def read_columns(view: BatchView, wanted: Sequence[tuple[Name, ValueKind]]) -> list[Values]:
    """The wanted columns, each `view.count` long, in this order."""
    names = dict.fromkeys(name.text for name, _ in wanted)
    texts, entries = _find(view, [name.encode() for name in names])
    found = dict(zip(names, entries, strict=True))
    return [_column(view, name, kind, texts, found[name.text]) for name, kind in wanted]


def _column(view: BatchView, name: Name, kind: ValueKind, texts: bytes, found: _Entries) -> Values:
    """A field of the message where the name means one, and over it the property."""
    count = view.count
    if len(found.rows) == count and found.rows == list(range(count)):
        return _converted(kind, texts, found)
    values = _field(view, name.field, kind) if name.field else [_ABSENT[kind]] * count
    if found.rows:
        for row, value in zip(found.rows, _converted(kind, texts, found), strict=True):
            values[row] = value
    return values


def _converted(kind: ValueKind, texts: bytes, found: _Entries) -> Values:
    types, places = found.types, zip(found.starts, found.ends, strict=True)
    count = len(types)
    if kind is ValueKind.PRESENT:
        return [True] * count
    if kind is ValueKind.STRING:
        slices = [texts[start:end] for start, end in places]
        if types.count(STRING) == count:
            return slices
        return [text if t == STRING else None for t, text in zip(types, slices, strict=True)]
    if kind is ValueKind.BOOLEAN:
        return [
            texts[start:end] == b"true" if t == BOOLEAN else None
            for t, (start, end) in zip(types, places, strict=True)
        ]
    try:  # All of one type, as a rule: then without a call per value.
        if types.count(INTEGER) == count:
            return [int(texts[start:end]) for start, end in places]
        if types.count(FLOAT) == count:
            return [float(texts[start:end]) for start, end in places]
    except ValueError:
        places = zip(found.starts, found.ends, strict=True)
    return [_number(t, texts[start:end]) for t, (start, end) in zip(types, places, strict=True)]


def _number(kind: int, text: bytes) -> int | float:
    try:
        if kind == INTEGER:
            return int(text)
        if kind == FLOAT:
            return float(text)
    except ValueError:
        pass
    return NAN


def _field(view: BatchView, field: str, kind: ValueKind) -> Values:
    """The key, the tag or the priority of every row, as far as it is of this type."""
    if field == "priority":
        if kind is ValueKind.NUMBER:
            return _priorities(view)
        return [True if kind is ValueKind.PRESENT else None] * view.count
    if kind not in (ValueKind.STRING, ValueKind.PRESENT):
        return [_ABSENT[kind]] * view.count
    texts = _tags(view) if field == "tag" else _keys(view)
    return texts if kind is ValueKind.STRING else [text is not None for text in texts]


def _priorities(view: BatchView) -> Values:
    packed = view.buffer(Column.PRIORITY, ColumnPart.VALUES)
    if packed is None:
        return [0] * view.count
    if len(packed) != view.count:
        raise Corrupt("the priorities have the wrong size")
    return _blanked(view, Column.PRIORITY, list(packed), 0)


def _tags(view: BatchView) -> Values:
    column = read_tags(view)
    if column is None:
        return [None] * view.count
    texts = list(map(column.words.__getitem__, column.codes.tolist()))
    return _blanked(view, Column.TAG, texts, None)


def _keys(view: BatchView) -> Values:
    data = view.buffer(Column.KEY, ColumnPart.DATA)
    if data is None:
        return [None] * view.count
    offsets = _offsets(view, Column.KEY, ColumnPart.OFFSETS, view.count, len(data)).tolist()
    text = bytes(data)
    texts = [text[start:end] for start, end in itertools.pairwise(offsets)]
    return _blanked(view, Column.KEY, texts, None)


def _blanked(view: BatchView, column: Column, values: Values, blank: object) -> Values:
    valid = valid_rows(view, column)
    if valid is None:
        return values
    return [v if ok else blank for v, ok in zip(values, valid.tolist(), strict=True)]


def _find(view: BatchView, names: list[bytes]) -> tuple[bytes, list[_Entries]]:
    """All values as text, and per name its entries."""
    types = view.buffer(Column.PROPERTIES, ColumnPart.VALUE_TYPES)
    if types is None:
        return b"", [_NO_ENTRIES] * len(names)
    total = len(types)
    name_data = view.buffer(Column.PROPERTIES, ColumnPart.NAME_DATA)
    value_data = view.buffer(Column.PROPERTIES, ColumnPart.VALUE_DATA)
    if name_data is None or value_data is None:
        raise Corrupt("properties without names or values")
    rows = _offsets(view, Column.PROPERTIES, ColumnPart.OFFSETS, view.count, total)
    if rows[-1] != total:
        raise Corrupt("properties belong to no row")
    name_at = _offsets(view, Column.PROPERTIES, ColumnPart.NAME_OFFSETS, total, len(name_data))
    value_at = _offsets(view, Column.PROPERTIES, ColumnPart.VALUE_OFFSETS, total, len(value_data))
    if total < SMALL:
        found = _find_few(names, bytes(name_data), rows, name_at)
        return bytes(value_data), [_entries(places, types, value_at) for places in found]
    row_of = np.repeat(np.arange(view.count), np.diff(rows))
    starts, kinds = np.frombuffer(value_at, "<i4"), np.frombuffer(types, np.uint8)
    letters, name_starts = np.frombuffer(name_data, np.uint8), np.frombuffer(name_at, "<i4")
    sizes = np.diff(name_starts)
    entries = []
    for name in names:
        at = _find_many(name, letters, name_starts, sizes)
        ends = starts[at + 1].tolist()
        entries.append(
            _Entries(row_of[at].tolist(), kinds[at].tobytes(), starts[at].tolist(), ends)
        )
    return bytes(value_data), entries


def _find_many(
    name: bytes,
    letters: np.ndarray[Any, np.dtype[np.uint8]],
    name_at: np.ndarray[Any, np.dtype[np.int32]],
    sizes: np.ndarray[Any, np.dtype[np.int32]],
) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Which entries have this name: those of its length, then letter by letter, last one first."""
    at = np.flatnonzero(sizes == len(name))
    for place in range(len(name) - 1, -1, -1):
        if not at.size:
            break
        same = letters[name_at[at] + place] == name[place]
        if not same.all():
            at = at[same]
    return at


def _find_few(
    names: list[bytes], name_data: bytes, rows: memoryview, name_at: memoryview
) -> list[list[tuple[int, int]]]:
    """Per name its (row, entry) pairs."""
    found: dict[bytes, list[tuple[int, int]]] = {name: [] for name in names}
    ends = name_at.tolist()
    for row, (first, end) in enumerate(itertools.pairwise(rows.tolist())):
        for at in range(first, end):
            places = found.get(name_data[ends[at] : ends[at + 1]])
            if places is not None:
                places.append((row, at))
    return list(found.values())


def _entries(places: list[tuple[int, int]], types: memoryview, value_at: memoryview) -> _Entries:
    return _Entries(
        [row for row, _ in places],
        bytes([types[at] for _, at in places]),
        [value_at[at] for _, at in places],
        [value_at[at + 1] for _, at in places],
    )


def _offsets(
    view: BatchView, column: Column, part: ColumnPart, count: int, size: int
) -> memoryview:
    """Offsets that start at zero, never go down and end within `size`."""
    packed = view.buffer(column, part)
    if packed is None or len(packed) != 4 * (count + 1):
        raise Corrupt(f"column {int(column)} lacks its offsets")
    offsets = packed.cast("i")
    if count < SMALL:
        numbers = offsets.tolist()
        rising = numbers == sorted(numbers)
    else:
        array = np.frombuffer(packed, dtype="<i4")
        rising = bool((array[1:] >= array[:-1]).all())
    if offsets[0] != 0 or offsets[-1] > size or not rising:
        raise Corrupt(f"column {int(column)} has offsets that do not fit its data")
    return offsets
