"""Which types, parts and values each column of a batch may have: one table, checked at the door.

`batch.check` makes sure that every buffer lies inside the batch and that offsets rise. This module
makes sure that a reader finds what it relies on: the parts that belong together, one type for all
of them, numbers that are dates, codes that are in their dictionary, text that is UTF-8 row by row,
property values that read as their type. What passes can be viewed, cut, picked, merged, filtered,
ordered, indexed, scheduled and shown to Arrow.

Columns that this version does not know pass if they have the parts of their type, so that they can
be cut and merged. Pure. Work per column, not per row, but for properties that are floats or bytes.
"""

import base64
import binascii
from typing import NamedTuple

import numpy as np

from ternmq.batch.layout import DUE_MAX_MS, ROWS_MAX, Column, ColumnPart, Encoding, Type
from ternmq.batch.properties import BYTES, FLOAT, INTEGER, INTEGER_DIGITS_MAX
from ternmq.batch.seal import SEAL_SIZE
from ternmq.batch.trace_context import STATE_SIZE_MAX, TRACE_SIZE
from ternmq.core.errors import ProtocolError

ColumnPlace = tuple[int, int, int, int]
"""Offset, size, encoding and type of a buffer."""
Parts = dict[tuple[int, int], ColumnPlace]

_MINUS, _ZERO = b"-0"


def _mask(*parts: ColumnPart) -> int:
    return sum(1 << part for part in parts)


_VALIDITY = _mask(ColumnPart.VALIDITY)
_TEXT = _mask(ColumnPart.OFFSETS, ColumnPart.DATA)
_NUMBERS = _mask(ColumnPart.VALUES)
_CODES = _mask(ColumnPart.VALUES, ColumnPart.DICTIONARY_OFFSETS, ColumnPart.DICTIONARY_DATA)
_PAIRS = _mask(
    ColumnPart.OFFSETS,
    ColumnPart.NAME_OFFSETS,
    ColumnPart.NAME_DATA,
    ColumnPart.VALUE_OFFSETS,
    ColumnPart.VALUE_DATA,
    ColumnPart.VALUE_TYPES,
)


class Rule(NamedTuple):
    """What a column must be: its types, and which sets of parts (as bits) it may have."""

    types: frozenset[int]
    shapes: frozenset[int]


def _rule(kind: Type, *shapes: int) -> Rule:
    return Rule(frozenset({int(kind)}), frozenset(shapes))


TYPE_SHAPES: dict[int, frozenset[int]] = {
    Type.BINARY: frozenset({_TEXT, _TEXT | _VALIDITY}),
    Type.UTF8: frozenset({_TEXT, _TEXT | _VALIDITY}),
    Type.INT64: frozenset({_NUMBERS, _NUMBERS | _VALIDITY}),
    Type.UINT8: frozenset({_NUMBERS, _NUMBERS | _VALIDITY}),
    Type.DICTIONARY: frozenset({_CODES, _CODES | _VALIDITY}),
    Type.MAP: frozenset({_PAIRS}),
}
"""What a column of a type needs in order to be cut and merged, whichever column it is."""

COLUMN_RULES: dict[int, Rule] = {
    Column.BODY: _rule(Type.BINARY, _TEXT, _TEXT | _mask(ColumnPart.CHUNKS)),
    Column.KEY: _rule(Type.UTF8, *TYPE_SHAPES[Type.UTF8]),
    Column.ORDER_KEY: _rule(Type.UTF8, *TYPE_SHAPES[Type.UTF8]),
    Column.TAG: _rule(Type.DICTIONARY, *TYPE_SHAPES[Type.DICTIONARY]),
    Column.PROPERTIES: _rule(Type.MAP, _PAIRS),
    Column.BORN: _rule(Type.INT64, _NUMBERS),
    Column.PRIORITY: _rule(Type.UINT8, *TYPE_SHAPES[Type.UINT8]),
    Column.EXPIRE: _rule(Type.INT64, *TYPE_SHAPES[Type.INT64]),
    Column.DUE: _rule(Type.INT64, _NUMBERS),
    Column.TRACE: _rule(Type.BINARY, *TYPE_SHAPES[Type.BINARY]),
    Column.EXPLICIT_ID: _rule(Type.BINARY, *TYPE_SHAPES[Type.BINARY]),
    Column.ORIGIN_APP: _rule(Type.UTF8, *TYPE_SHAPES[Type.UTF8]),
    Column.ORIGIN_ADDRESS: _rule(Type.BINARY, *TYPE_SHAPES[Type.BINARY]),
    Column.SEAL: _rule(Type.BINARY, *TYPE_SHAPES[Type.BINARY]),
}
"""Columns of messages. TRANSACTION is no column of rows: see `check_columns`."""

_TRANSACTION = int(Column.TRANSACTION)
_TRANSACTION_SHAPE = _mask(ColumnPart.DATA)
_CHUNKS = _mask(ColumnPart.CHUNKS)
_BODY, _DATA = int(Column.BODY), int(ColumnPart.DATA)
_TIMES = frozenset({int(Column.BORN), int(Column.EXPIRE), int(Column.DUE)})
_UTF8, _DICTIONARY, _MAP = int(Type.UTF8), int(Type.DICTIONARY), int(Type.MAP)
_OFFSETS, _VALUES = int(ColumnPart.OFFSETS), int(ColumnPart.VALUES)
_PLAIN = int(Encoding.PLAIN)
_TRACE = int(Column.TRACE)
_SIZES = {int(Column.ORIGIN_ADDRESS): (0, 18), int(Column.SEAL): (0, SEAL_SIZE)}
"""Values of one size, or none: an address is IPv6 and port."""


def check_columns(batch: bytearray | memoryview, parts: Parts, *, half: bool) -> None:
    """Refuse a batch with a column that some reader could not read; sizes were checked before."""
    kinds: dict[int, int] = {}
    shapes: dict[int, int] = {}
    for (column, part), (_, _, encoding, kind) in parts.items():
        if kinds.setdefault(column, kind) != kind:
            raise ProtocolError(f"column {column} has parts of several types")
        if encoding != _PLAIN and (column != _BODY or part != _DATA):
            raise ProtocolError(f"column {column}: only bodies may be compressed")
        shapes[column] = shapes.get(column, 0) | 1 << part
    if shapes.get(_BODY, 0) & _CHUNKS and parts[_BODY, _DATA][2] == _PLAIN:
        raise ProtocolError("a chunk table for bodies that are not compressed")
    for column, shape in shapes.items():
        kind = kinds[column]
        _check_shape(column, kind, shape, half=half)
        if column != _BODY and column != _TRANSACTION:
            _check_values(batch, parts, column, kind)


def _check_shape(column: int, kind: int, shape: int, *, half: bool) -> None:
    if column == _TRANSACTION:
        if not half or shape != _TRANSACTION_SHAPE or kind != Type.BINARY:
            raise ProtocolError("only a half batch says which transaction it belongs to, once")
        return
    rule = COLUMN_RULES.get(column)
    if kind not in (TYPE_SHAPES if rule is None else rule.types):
        raise ProtocolError(f"column {column} cannot be of type {kind}")
    if shape not in (TYPE_SHAPES[kind] if rule is None else rule.shapes):
        raise ProtocolError(f"column {column} lacks a part, or has one too many")


def _check_values(batch: bytearray | memoryview, parts: Parts, column: int, kind: int) -> None:
    view = memoryview(batch)
    if kind == _UTF8:
        _check_text(view, parts, column, ColumnPart.OFFSETS, ColumnPart.DATA)
    elif kind == _DICTIONARY:
        words = ColumnPart.DICTIONARY_OFFSETS
        _check_text(view, parts, column, words, ColumnPart.DICTIONARY_DATA)
        codes = _numbers(view, parts[column, _VALUES], "<i4")
        if parts[column, words][1] // 4 > ROWS_MAX + 1:
            raise ProtocolError(f"column {column} has more than {ROWS_MAX} different words")
        if codes.min() < 0 or codes.max() >= parts[column, words][1] // 4 - 1:
            raise ProtocolError("a tag is not in its dictionary")
    elif kind == _MAP:
        _check_properties(view, parts, column)
    elif column in _TIMES:
        times = _numbers(view, parts[column, _VALUES], "<i8")
        if times.min() < 0 or times.max() > DUE_MAX_MS:
            raise ProtocolError(f"column {column}: times must be 0 to {DUE_MAX_MS}")
    elif column == _TRACE:
        sizes = np.diff(_numbers(view, parts[column, _OFFSETS], "<i4"))
        fine = (sizes == 0) | ((sizes >= TRACE_SIZE) & (sizes <= TRACE_SIZE + STATE_SIZE_MAX))
        if not fine.all():
            raise ProtocolError(f"column {column}: a context has at least {TRACE_SIZE} bytes")
    elif column in _SIZES:
        sizes = np.diff(_numbers(view, parts[column, _OFFSETS], "<i4"))
        if not np.isin(sizes, _SIZES[column]).all():
            raise ProtocolError(f"column {column}: a value must have {_SIZES[column][1]} bytes")


def _numbers(view: memoryview, place: ColumnPlace, kind: str) -> np.ndarray:
    return np.frombuffer(view[place[0] : place[0] + place[1]], dtype=kind)


def _check_text(
    view: memoryview, parts: Parts, column: int, offsets: ColumnPart, data: ColumnPart
) -> bytes:
    """Every value is UTF-8 by itself: the whole is, and no value begins inside a letter."""
    at, size, _, _ = parts[column, data]
    text = bytes(view[at : at + size])
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        raise ProtocolError(f"column {column} has text that is not UTF-8") from None
    starts = _numbers(view, parts[column, offsets], "<i4")
    starts = starts[starts < len(text)]
    if bool(((np.frombuffer(text, np.uint8)[starts] & 0xC0) == 0x80).any()):
        raise ProtocolError(f"column {column} has text that is cut inside a letter")
    return text


def _check_properties(view: memoryview, parts: Parts, column: int) -> None:
    _check_text(view, parts, column, ColumnPart.NAME_OFFSETS, ColumnPart.NAME_DATA)
    text = _check_text(view, parts, column, ColumnPart.VALUE_OFFSETS, ColumnPart.VALUE_DATA)
    kinds = _numbers(view, parts[column, ColumnPart.VALUE_TYPES], "u1")
    highest = int(kinds.max(initial=0))
    if highest > BYTES:
        raise ProtocolError(f"property type {highest} is not known here")
    if not highest:
        return
    places = _numbers(view, parts[column, ColumnPart.VALUE_OFFSETS], "<i4")
    _check_integers(text, places, kinds)
    _check_each(text, places, kinds)


def _check_integers(text: bytes, places: np.ndarray, kinds: np.ndarray) -> None:
    """Digits, perhaps behind a minus sign; as long as Python reads them."""
    whole = kinds == INTEGER
    if not bool(whole.any()):
        return
    lengths = np.diff(places)
    starts, sizes = places[:-1][whole], lengths[whole]
    if int(sizes.min()) < 1 or int(sizes.max()) > INTEGER_DIGITS_MAX + 1:
        raise ProtocolError(f"an integer property must have 1 to {INTEGER_DIGITS_MAX} digits")
    letters = np.frombuffer(text, np.uint8)
    signed = letters[starts] == _MINUS
    if bool((sizes[signed] < 2).any()):
        raise ProtocolError("an integer property has no digits")
    odd = (letters - _ZERO) > 9  # Below "0" wraps around to above 9.
    odd[starts[signed]] = False
    if bool((odd & np.repeat(whole, lengths)).any()):
        raise ProtocolError("an integer property is not a number")


def _check_each(text: bytes, places: np.ndarray, kinds: np.ndarray) -> None:
    """Floats and bytes have no shape that numpy could check: each one is read."""
    rare = np.flatnonzero((kinds == FLOAT) | (kinds == BYTES))
    bounds = zip(places[rare].tolist(), places[rare + 1].tolist(), strict=True)
    try:
        for kind, (start, end) in zip(kinds[rare].tolist(), bounds, strict=True):
            if kind == FLOAT:
                float(text[start:end])
            else:
                base64.b64decode(text[start:end], validate=True)
    except (ValueError, binascii.Error):
        raise ProtocolError("a property value does not read as its type") from None
