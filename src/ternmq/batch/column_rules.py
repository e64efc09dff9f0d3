"""Which types, parts and values each column of a batch may have: one table, checked at the door.

`batch.check` makes sure that every buffer lies inside the batch and that offsets rise. This module
makes sure that a reader finds what it relies on: the parts that belong together, one type for all
of them, numbers that are dates, codes that are in their dictionary, text that is UTF-8 row by row,
property values that read as their type. What passes can be viewed, cut, picked, merged, filtered,
ordered, indexed, scheduled and shown to Arrow.

Columns that this version does not know pass if they have the parts of their type, so that they can
be cut and merged. Pure. Work per column and by numpy, never per row: whoever sends a batch of a
million odd properties holds the loop no longer than by as many plain bytes.
"""

from collections.abc import Iterable
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

_MINUS, _ZERO, _PAD = b"-0="
_BEGIN, _SIGN, _POINT, _EXPONENT, _DIGIT = 1, 2, 3, 4, 10
"""What the letters of a float are; those that may end one are the highest."""
_WORDS = ((b"-inf", b"\x85\x86\x87\x8b"), (b"inf", b"\x86\x87\x8b"), (b"nan", b"\x88\x89\x8c"))
"""Letters of words, by others that are nowhere else: what each is, and 128."""


def _table(*lines: tuple[Iterable[int], int], rest: int) -> bytes:
    """For `bytes.translate`, which is many times faster than numpy's look-ups."""
    table = bytearray([rest]) * 256
    for letters, becomes in lines:
        for letter in letters:
            table[letter] = becomes
    return bytes(table)


_LETTER_CLASSES = _table(
    (b"0123456789", _DIGIT),
    (b"+-", _SIGN),
    (b".", _POINT),
    (b"eE", _EXPONENT),
    *(([128 + each], each) for each in (5, 6, 7, 8, 9, 11, 12)),
    rest=0,
)
_FOLLOWERS = {
    _BEGIN: (_DIGIT, _SIGN, 5, 6, 8),
    _SIGN: (_DIGIT,),
    _DIGIT: (_DIGIT, _POINT, _EXPONENT),
    _POINT: (_DIGIT,),
    _EXPONENT: (_DIGIT, _SIGN),
    5: (6,),
    6: (7,),
    7: (11,),
    8: (9,),
    9: (12,),
}
_MAY_NOT_FOLLOW = _table(
    *(([before << 4 | each for each in after], 0) for before, after in _FOLLOWERS.items()), rest=1
)
"""By the class of a letter times 16 and the class of the next one."""
_NO_MARKS = bytes(each for each in range(256) if each not in (_BEGIN, _POINT, _EXPONENT))
_TWICE = [bytes(two) for two in ((_POINT, _POINT), (_EXPONENT, _POINT), (_EXPONENT, _EXPONENT))]
_NOT_BASE64 = _table(
    (b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", 0), rest=1
)


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
    _check_floats(text, places, kinds)
    _check_base64(text, places, kinds)


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


def _check_floats(text: bytes, places: np.ndarray, kinds: np.ndarray) -> None:
    """As Python writes them: `-1.5e-07`, and the words inf, -inf and nan. Which letter may follow
    which is one table; a point and an e come at most once each, the point first."""
    chosen = kinds == FLOAT
    if not bool(chosen.any()):
        return
    starts, ends = places[:-1][chosen], places[1:][chosen]
    if int((ends - starts).min()) < 1:
        raise _unreadable()
    if not bool(chosen.all()):
        letters = np.frombuffer(text, np.uint8).copy()
        letters[~np.repeat(chosen, np.diff(places))] = _ZERO
        text = letters.tobytes()
    if b"n" in text:
        for word, by in _WORDS:
            text = text.replace(word, by)
    classes = np.frombuffer(bytearray(text.translate(_LETTER_CLASSES)), np.uint8)
    if bool((classes[ends - 1] < _DIGIT).any()):
        raise _unreadable()
    before = np.empty_like(classes)
    before[1:] = classes[:-1]
    before[places[:-1][places[:-1] < len(text)]] = _BEGIN
    if b"\1" in (before << 4 | classes).tobytes().translate(_MAY_NOT_FOLLOW):
        raise _unreadable()
    classes[starts] = _BEGIN  # None of these is a mark.
    marks = classes.tobytes().translate(None, _NO_MARKS)
    if any(twice in marks for twice in _TWICE):
        raise _unreadable()


def _check_base64(text: bytes, places: np.ndarray, kinds: np.ndarray) -> None:
    """Fours of its letters; only the last four may end with one or two `=`."""
    chosen = kinds == BYTES
    if not bool(chosen.any()):
        return
    lengths = np.diff(places)
    ends, sizes = places[1:][chosen], lengths[chosen]
    letters = np.frombuffer(text, np.uint8)
    odd = np.frombuffer(text.translate(_NOT_BASE64), np.bool_)
    wrong = odd & np.repeat(chosen, lengths)
    full = ends[sizes > 0]
    last, one_before = letters[full - 1] == _PAD, letters[full - 2] == _PAD
    wrong[full[last] - 1] = False
    wrong[full[last & one_before] - 2] = False
    if bool((sizes % 4).any()) or bool(wrong.any()):
        raise _unreadable()


def _unreadable() -> ProtocolError:
    return ProtocolError("a property value does not read as its type")
