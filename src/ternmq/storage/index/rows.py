"""The index rows of one batch, worked out for all of its messages at once.

Three kinds of rows. A *range* says which message numbers of a producer a batch holds: it finds
every id that was not given explicitly, and costs one row a batch. An *id* row is one explicit id, a
*key* row one key: its 64-bit hash and the message's place. Hashes only narrow the search; whoever
finds a place looks at the message itself, so two values with one hash do no harm.

The hash of a value is a sum over its bytes times powers of an odd number, modulo 2**64, so numpy
does a whole column in a few steps; then the length goes in and the bits are mixed. Part of a file
format: it never changes. No Python per message, here or in who calls it, and little per batch: a
batch may be one message, and this runs beside the loop that takes it in, under one GIL.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ternmq.batch.layout import Buffer, Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.core.ids import RANDOM_BITS, SEQUENCE_BITS, START_BITS
from ternmq.storage.consume.entry import Location

Hashes = NDArray[np.uint64]
IndexRows = NDArray[np.void]

RANGE = np.dtype(
    [
        ("hash", "<u8"),
        ("first", "<u8"),
        ("topic_id", "<u8"),
        ("sequence", "<u8"),
        ("count", "<u4"),
        ("spare", "<u4"),
    ]
)
PLACE = np.dtype([("hash", "<u8"), ("topic_id", "<u8"), ("sequence", "<u8")])
RECORD_ROWS = np.dtype(
    [
        ("topic_id", "<u8"),
        ("base_sequence", "<u8"),
        ("offset", "<u8"),
        ("size", "<u4"),
        ("count", "<u4"),
        ("stored_at_ms", "<i8"),
        ("tag_bloom", "<u8"),
        ("priority", "u1"),
        ("location", "u1"),
        ("spare", "<u2"),
        ("checksum", "<u4"),
        ("start", "<u8"),
        ("random", "<u8"),
        ("first", "<u8"),
    ]
)
"""`consume.entry.RECORD` as numpy sees it."""

assert RANGE.itemsize == 40
assert PLACE.itemsize == 24
assert RECORD_ROWS.itemsize == 80

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_POWERS = np.cumprod(np.full(4096, _FACTOR, dtype=np.uint64), dtype=np.uint64)
_ID_SIZE = 16
TOGETHER_MAX = 64  # Rows of a batch that is worth hashing together with others.


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(30))) * _MIX[0]
    values = (values ^ (values >> np.uint64(27))) * _MIX[1]
    return values ^ (values >> np.uint64(31))


def hash_rows(offsets: NDArray[np.int64], data: Buffer) -> Hashes:
    """One hash per value of a column: value i is `data[offsets[i]:offsets[i + 1]]`."""
    lengths = np.diff(offsets)
    content = np.frombuffer(data, dtype=np.uint8, count=int(offsets[-1])).astype(np.uint64)
    within = np.arange(len(content), dtype=np.int64) - np.repeat(offsets[:-1], lengths)
    terms = (content + np.uint64(1)) * _POWERS[np.minimum(within, len(_POWERS) - 1)]
    sums = np.zeros(len(content) + 1, dtype=np.uint64)
    np.cumsum(terms, dtype=np.uint64, out=sums[1:])
    return _mixed((sums[offsets[1:]] - sums[offsets[:-1]]) ^ lengths.astype(np.uint64))


def hash_values(values: list[bytes]) -> Hashes:
    """Hashes of separate values."""
    lengths = np.fromiter((len(value) for value in values), dtype=np.int64, count=len(values))
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return hash_rows(offsets, b"".join(values))


def hash_producers(start: Hashes, random: Hashes) -> Hashes:
    return _mixed(_mixed(start * _FACTOR) ^ random)


def split_id(message_id: bytes) -> tuple[int, int, int] | None:
    """Producer's start and random and the message's number, if the id has that form."""
    if len(message_id) != _ID_SIZE:
        return None
    number = int.from_bytes(message_id, "big")
    return (
        number >> (RANDOM_BITS + SEQUENCE_BITS) & (2**START_BITS - 1),
        number >> SEQUENCE_BITS & (2**RANDOM_BITS - 1),
        number & (2**SEQUENCE_BITS - 1),
    )


class IndexColumns(NamedTuple):
    """Rows of all three kinds, in no order."""

    ranges: IndexRows
    ids: IndexRows
    keys: IndexRows

    @property
    def row_count(self) -> int:
        return len(self.ranges) + len(self.ids) + len(self.keys)


def joined(parts: list[IndexColumns]) -> IndexColumns:
    """All rows of several."""
    parts = [IndexColumns(np.empty(0, RANGE), np.empty(0, PLACE), np.empty(0, PLACE)), *parts]
    return IndexColumns(
        np.concatenate([part.ranges for part in parts]),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.keys for part in parts]),
    )


def ranges_of(records: Buffer) -> IndexRows:
    """Ranges from packed consume records."""
    found = np.frombuffer(records, dtype=RECORD_ROWS)
    found = found[found["location"] <= Location.COMMITTED]
    rows = np.zeros(len(found), dtype=RANGE)
    rows["hash"] = hash_producers(found["start"], found["random"])
    rows["first"], rows["topic_id"] = found["first"], found["topic_id"]
    rows["sequence"], rows["count"] = found["base_sequence"], found["count"]
    return rows


def searchable(view: BatchView) -> bool:
    """Whether a batch has rows that only its bytes can tell."""
    parts = view.parts()
    return (Column.KEY, ColumnPart.DATA) in parts or (Column.EXPLICIT_ID, ColumnPart.DATA) in parts


class PlaceColumns:
    """Ids and keys of many batches, stored at known places; small batches are hashed together."""

    def __init__(self) -> None:
        self._ids = _PlaceColumn(Column.EXPLICIT_ID)
        self._keys = _PlaceColumn(Column.KEY)

    def add(self, view: BatchView, topic_id: int, base_sequence: int) -> None:
        """None of a column that cannot be read."""
        self._ids.add(view, topic_id, base_sequence)
        self._keys.add(view, topic_id, base_sequence)

    @property
    def row_count(self) -> int:
        return self._ids.row_count + self._keys.row_count

    def rows(self) -> tuple[IndexRows, IndexRows]:
        """(ids, keys)."""
        return self._ids.rows(), self._keys.rows()


class _PlaceColumn:
    """One column of many batches."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._small: list[tuple[BatchView, int, int]] = []
        self._data: list[memoryview] = []
        self._offsets: list[memoryview] = []
        self._ready: list[IndexRows] = []
        self.row_count = 0

    def add(self, view: BatchView, topic_id: int, base_sequence: int) -> None:
        data, packed = (
            view.buffer(self._column, ColumnPart.DATA),
            view.buffer(self._column, ColumnPart.OFFSETS),
        )
        if data is None or packed is None:
            return
        self.row_count += view.count
        whole = len(packed) == 4 * (view.count + 1)
        if (
            not whole
            or view.count > TOGETHER_MAX
            or view.buffer(self._column, ColumnPart.VALIDITY) is not None
        ):
            self._ready.append(_readable(view, self._column, topic_id, base_sequence))
            return
        self._small.append((view, topic_id, base_sequence))
        self._data.append(data)
        self._offsets.append(packed)

    def rows(self) -> IndexRows:
        return np.concatenate([np.empty(0, PLACE), *self._ready, *self._together()])

    def _together(self) -> list[IndexRows]:
        if not self._small:
            return []
        numbers = np.frombuffer(b"".join(self._offsets), dtype="<i4").astype(np.int64)
        counts = np.fromiter((view.count for view, _, _ in self._small), np.int64)
        sizes = np.fromiter(map(len, self._data), np.int64)
        lasts = np.cumsum(counts + 1) - 1
        within = np.ones(len(numbers) - 1, dtype=bool)
        within[lasts[:-1]] = False  # From the last offset of a batch to the first of the next.
        lengths = np.diff(numbers)[within]
        if numbers[lasts - counts].any() or (numbers[lasts] != sizes).any() or lengths.min() < 0:
            # Some batch of an older release is not as it should be: each one by itself.
            return [_readable(view, self._column, *place) for view, *place in self._small]
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        rows = np.zeros(len(lengths), dtype=PLACE)
        rows["hash"] = hash_rows(offsets, b"".join(self._data))
        topics = np.fromiter((topic_id for _, topic_id, _ in self._small), np.uint64)
        bases = np.fromiter((base for _, _, base in self._small), np.uint64)
        starts = (np.cumsum(counts) - counts).astype(np.uint64)
        rows["topic_id"] = np.repeat(topics, counts)
        rows["sequence"] = np.repeat(bases - starts, counts) + np.arange(len(rows), dtype=np.uint64)
        return [rows]


def _readable(view: BatchView, column: Column, topic_id: int, base_sequence: int) -> IndexRows:
    try:
        return _places(view, column, topic_id, base_sequence)
    except (ValueError, IndexError, TypeError):
        return np.empty(0, PLACE)  # Of an older release; nobody can ask for such a value.


def _places(view: BatchView, column: Column, topic_id: int, base_sequence: int) -> IndexRows:
    data, packed = view.buffer(column, ColumnPart.DATA), view.buffer(column, ColumnPart.OFFSETS)
    if data is None or packed is None:
        return np.empty(0, PLACE)
    offsets = np.frombuffer(packed, dtype="<i4").astype(np.int64)
    rows = np.zeros(view.count, dtype=PLACE)
    rows["hash"] = hash_rows(offsets, data)
    rows["topic_id"] = topic_id
    rows["sequence"] = np.arange(base_sequence, base_sequence + view.count, dtype=np.uint64)
    valid = view.buffer(column, ColumnPart.VALIDITY)
    if valid is not None:
        bits = np.frombuffer(valid, np.uint8)
        rows = rows[np.unpackbits(bits, count=view.count, bitorder="little").astype(bool)]
    return rows
