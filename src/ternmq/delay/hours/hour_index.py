"""Finds rows of a loaded hour in its schedule log, by number and by message id. Pure memory.

Per record (a batch): offset, first row, topic, producer and first message number, in packed arrays;
28 bytes. Per row nothing, except for rows whose ids do not follow from their batch (merged ones):
a 64-bit hash and the row, 12 bytes, in sorted blocks, so that no question has to sort an hour.
`find` gives candidates; the reader of the record compares ids. A record whose ids cannot be read is
in here as any other: its rows are due, and whoever collects them puts them aside.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from ternmq.batch.due import due_times
from ternmq.batch.layout import Attribute, Column, ColumnPart
from ternmq.batch.rows.merge import ids_of
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.ids import RANDOM_BITS, SEQUENCE_BITS

_MIX = np.uint64(0x9E3779B97F4A7C15)
BLOCK_ROWS = 2**16


class IndexedRows(NamedTuple):
    """One record of a schedule log, as loading or scheduling saw it."""

    offset: int
    size: int
    row_count: int
    first_row: int
    topic_id: int
    wal_offset: int
    producer: tuple[int, int]
    first_sequence: int
    due_ms: np.ndarray
    hashes: np.ndarray | None
    """Of the ids, where they do not follow from producer and first sequence."""


def entry_of(data: memoryview | bytes | bytearray) -> IndexedRows:
    """Read what the index wants of a placed piece."""
    view = BatchView(data)
    stamped = view.stamp
    return IndexedRows(
        stamped.offset,
        view.size,
        view.count,
        stamped.base_sequence,
        stamped.topic_id,
        stamped.epoch,
        (view.producer.start_ms, view.producer.random),
        view.first_sequence,
        np.array(times_of(view)),
        _hashes_of(view),
    )


def times_of(view: BatchView) -> np.ndarray:
    """When its rows are due; at once where no reader can tell, so that they are noticed."""
    try:
        return due_times(view, view.stamp.received_at_ms)
    except Corrupt:
        return np.full(view.count, view.stamp.stored_at_ms, np.int64)


def _hashes_of(view: BatchView) -> np.ndarray | None:
    """Of ids that rows have of their own; none where they cannot be read (`batch.readability`)."""
    own = view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is not None
    if not own and not view.attributes & Attribute.MERGED:
        return None
    try:
        return hash_ids(*ids_of(view, np.arange(view.count)))
    except Exception:  # Whoever wants to send these rows, or an id of them, says so.
        return None


def by_due(entries: Sequence[IndexedRows]) -> tuple[np.ndarray, np.ndarray]:
    """(rows, due times) of some records, sorted by due time; in order of rows where it is one."""
    if not entries:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    first, last = entries[0].first_row, entries[-1]
    due_ms = np.concatenate([entry.due_ms for entry in entries])
    rows = np.arange(first, last.first_row + last.row_count, dtype=np.uint32)
    if len(rows) != len(due_ms):  # Something between them cannot be read.
        mine = [np.arange(each.first_row, each.first_row + each.row_count) for each in entries]
        rows = np.concatenate(mine).astype(np.uint32)
    order = np.argsort(due_ms, kind="stable")
    return rows[order], due_ms[order]


def hash_ids(sizes: np.ndarray, data: np.ndarray) -> np.ndarray:
    """64 bits for each id."""
    if len(sizes) and int(sizes.min()) == int(sizes.max()) == 16:
        halves = np.frombuffer(data.tobytes(), "<u8").reshape(-1, 2)
        with np.errstate(over="ignore"):
            mixed: np.ndarray = (halves[:, 0] * _MIX) ^ (halves[:, 1] + _MIX)
        return mixed
    ends = np.cumsum(sizes)
    whole = data.tobytes()
    return np.array(
        [_hash(whole[end - size : end]) for end, size in zip(ends, sizes, strict=True)], np.uint64
    )


def _hash(value: bytes) -> int:
    if len(value) == 16:
        return int(hash_ids(np.array([16]), np.frombuffer(value, np.uint8))[0])
    return (crc32c(value) << 32) | crc32c(value, 1)


class HourIndex:
    """The records of one hour."""

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._firsts = array("I")
        self._topics = array("I")
        self._producers = array("I")
        self._sequences = array("Q")
        self.topic_ids: list[int] = []
        self._topic_numbers: dict[int, int] = {}
        self._producer_numbers: dict[tuple[int, int], int] = {}
        self._hashed: list[tuple[np.ndarray, int]] = []
        self._hashed_rows = 0
        self._blocks: list[tuple[np.ndarray, np.ndarray]] = []
        """(hashes, rows), sorted; what is in none of them is in `_hashed`."""
        self.rows = 0
        self.end = 0
        """Bytes of the file that are in here."""

    def add(self, entry: IndexedRows) -> None:
        """The next record."""
        if entry.topic_id not in self._topic_numbers:
            self._topic_numbers[entry.topic_id] = len(self.topic_ids)
            self.topic_ids.append(entry.topic_id)
        numbers = self._producer_numbers
        self._offsets.append(entry.offset)
        self._firsts.append(entry.first_row)
        self._topics.append(self._topic_numbers[entry.topic_id])
        self._producers.append(numbers.setdefault(entry.producer, len(numbers)))
        self._sequences.append(entry.first_sequence)
        if entry.hashes is not None:
            self._hashed.append((entry.hashes, entry.first_row))
            self._hashed_rows += len(entry.hashes)
            if self._hashed_rows >= BLOCK_ROWS:
                self._blocks.append(self._block())
                self._hashed, self._hashed_rows = [], 0
        self.rows = entry.first_row + entry.row_count
        self.end = entry.offset + entry.size

    def records_of(self, rows: np.ndarray) -> np.ndarray:
        """The number of the record that holds each row."""
        firsts = np.frombuffer(self._firsts, np.uint32)
        return np.searchsorted(firsts, rows, side="right") - 1

    def topics_of(self, rows: np.ndarray) -> np.ndarray:
        """Numbers into `topic_ids`."""
        topics: np.ndarray = np.frombuffer(self._topics, np.uint32)[self.records_of(rows)]
        return topics

    def place(self, record: int) -> tuple[int, int, int]:
        """(offset, size, first row) of a record."""
        last = record + 1 == len(self._offsets)
        end = self.end if last else self._offsets[record + 1]
        return self._offsets[record], end - self._offsets[record], self._firsts[record]

    def find(self, message_id: bytes) -> list[int]:
        """Rows that may have this id."""
        found = self._find_hashed(message_id)
        if len(message_id) == 16:
            found += self._find_numbered(int.from_bytes(message_id, "big"))
        return found

    def _find_numbered(self, number: int) -> list[int]:
        high, sequence = number >> SEQUENCE_BITS, number & ((1 << SEQUENCE_BITS) - 1)
        producer = (high >> RANDOM_BITS, high & ((1 << RANDOM_BITS) - 1))
        known = self._producer_numbers.get(producer)
        if known is None:
            return []
        firsts = np.frombuffer(self._firsts, np.uint32).astype(np.int64)
        counts = np.diff(np.r_[firsts, self.rows])
        starts = np.frombuffer(self._sequences, np.uint64).astype(np.int64)
        mine = np.frombuffer(self._producers, np.uint32) == known
        hit = np.flatnonzero(mine & (starts <= sequence) & (sequence < starts + counts))
        return [int(firsts[at] + sequence - starts[at]) for at in hit]

    def _find_hashed(self, message_id: bytes) -> list[int]:
        wanted = np.uint64(_hash(message_id))
        found: list[int] = []
        for hashes, rows in [*self._blocks, self._block()] if self._hashed else self._blocks:
            low = int(np.searchsorted(hashes, wanted, side="left"))
            high = int(np.searchsorted(hashes, wanted, side="right"))
            found += [int(row) for row in rows[low:high]]
        return found

    def _block(self) -> tuple[np.ndarray, np.ndarray]:
        hashes = np.concatenate([hashes for hashes, _ in self._hashed])
        rows = np.concatenate(
            [np.arange(first, first + len(hashes)) for hashes, first in self._hashed]
        ).astype(np.uint32)
        order = np.argsort(hashes, kind="stable")
        return hashes[order], rows[order]
