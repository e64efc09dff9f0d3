"""All consume tables of a broker: finds the entries of a topic in the right file.

Open files, loaded indexes and chunks of entries are cached within bounds, first in first out. A
sequential reader finds its next entries in the chunk it had before or the one after it. With
`wait=False` nothing that could block on the disk is done: `WouldBlock` is raised and the caller
goes to a thread that may wait.

A table that does not check is made again from its message segment by `rebuild`, which the store
hands in, so damage here costs time and no data. Any thread may read; one thread adds.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ternmq.core.errors import Corrupt
from ternmq.storage.consume.entry import ENTRY, ENTRY_SIZE
from ternmq.storage.consume.runs import Selection
from ternmq.storage.consume.table_file import CHUNK_ENTRIES, INDEX, Index, Table, TableRow
from ternmq.storage.files.disk import File

INDEXES_MAX = 32
CHUNKS_MAX = 1024  # Of 256 entries: 12 MiB.
ROWS_MAX = 16_384
PLACES_MAX = 16_384

K = TypeVar("K")
V = TypeVar("V")


class WouldBlock(Exception):
    """The bytes are not in memory; ask again from a thread that may wait."""


class Cache(Generic[K, V]):
    """At most `count_max` values, oldest dropped first; safe to use from several threads."""

    __slots__ = ("_count_max", "_items", "get")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._items: dict[K, V] = {}
        self.get = self._items.get

    def put(self, key: K, value: V) -> None:
        items = self._items
        items[key] = value
        while len(items) > self._count_max:
            try:
                items.pop(next(iter(items)), None)
            except (RuntimeError, StopIteration):
                return  # Another thread is making room.

    def clear(self) -> None:
        self._items.clear()


class _Chunk:
    """Up to 256 checked entries of one topic."""

    __slots__ = ("bases", "end", "packed")

    def __init__(self, packed: bytes | bytearray) -> None:
        self.packed = packed
        self.bases = array("Q", [fields[0] for fields in ENTRY.iter_unpack(packed)])
        last = ENTRY.unpack_from(packed, len(packed) - ENTRY_SIZE)
        self.end: int = last[0] + last[3]

    def holds(self, sequence: int) -> bool:
        first: int = self.bases[0]
        return first <= sequence < self.end


class _Place(NamedTuple):
    """Where a topic was read last."""

    table: int
    """The table's base."""
    number: int
    """Of the chunk."""
    chunk: _Chunk


class ConsumeTables:
    """The sealed part of the consume log."""

    def __init__(self, *, files_open_max: int, rebuild: Callable[[int], Table]) -> None:
        self._rebuild = rebuild
        self.tables: list[Table] = []
        self.bytes_read = 0  # By loading indexes.
        self._files: Cache[int, File] = Cache(files_open_max)
        self._indexes: Cache[int, Index] = Cache(INDEXES_MAX)
        self._rows: Cache[tuple[int, int], TableRow | None] = Cache(ROWS_MAX)
        self._chunks: Cache[tuple[int, int, int], _Chunk] = Cache(CHUNKS_MAX)
        self._places: Cache[int, _Place] = Cache(PLACES_MAX)

    def add(self, table: Table) -> None:
        """Add a table, or put it in the place of one with the same base."""
        others = [known for known in self.tables if known.base != table.base]
        self.tables = sorted([*others, table], key=lambda known: known.base)
        if len(others) + 1 == len(self.tables) and others == self.tables[:-1]:
            return
        self._clear()

    def remove(self, table: Table) -> None:
        """A segment is gone; who reads from it right now finishes."""
        self.tables = [known for known in self.tables if known.base != table.base]
        self._clear()

    def _clear(self) -> None:
        for cache in (self._files, self._indexes, self._rows, self._chunks, self._places):
            cache.clear()

    def index(self, table: Table) -> Index:
        """The index of a table, waiting for the disk if need be."""
        return self._index(table, wait=True)

    def take(self, topic_id: int, selection: Selection, *, wait: bool) -> bool:
        """Add the entries from `selection.sequence` on that one table has; False if none has."""
        place = self._places.get(topic_id)
        if place is not None and place.chunk.holds(selection.sequence):  # Reads go on mostly.
            chunk = place.chunk
            selection.take(chunk.packed, bisect_right(chunk.bases, selection.sequence) - 1)
            return True
        table = self._find(topic_id, selection.sequence, wait=wait)
        if table is None:
            return False
        try:
            self._take(table, topic_id, selection, wait=wait)
        except Corrupt:
            self._take(self._renew(table, wait=wait), topic_id, selection, wait=wait)
        return True

    def find_time(self, topic_id: int, stored_at_ms: int, *, wait: bool) -> int | None:
        """First sequence of the topic stored at or after, if the tables have it."""
        for table in self.tables:
            if table.last_stored_at_ms < stored_at_ms:
                continue
            try:
                found = self._find_time(table, topic_id, stored_at_ms, wait=wait)
            except Corrupt:
                renewed = self._renew(table, wait=wait)
                found = self._find_time(renewed, topic_id, stored_at_ms, wait=wait)
            if found is not None:
                return found
        return None

    def _find_time(
        self, table: Table, topic_id: int, stored_at_ms: int, *, wait: bool
    ) -> int | None:
        row = self._row(table, topic_id, wait=wait)
        if row is None or not row.entry_count:
            return None

        def entry(number: int) -> tuple[int, ...]:
            chunk = self._chunk(table, topic_id, row, number // CHUNK_ENTRIES, wait=wait)
            return ENTRY.unpack_from(chunk.packed, number % CHUNK_ENTRIES * ENTRY_SIZE)

        low, high = 0, row.entry_count
        while low < high:
            middle = (low + high) // 2
            if entry(middle)[4] < stored_at_ms:
                low = middle + 1
            else:
                high = middle
        return entry(low)[0] if low < row.entry_count else None

    def _find(self, topic_id: int, sequence: int, *, wait: bool) -> Table | None:
        """The first table where the topic's end is above `sequence`."""
        tables = self.tables
        low, high = 0, len(tables)
        while low < high:
            middle = (low + high) // 2
            row = self._row(tables[middle], topic_id, wait=wait)
            if row is None or row.end_sequence <= sequence:
                low = middle + 1
            else:
                high = middle
        return None if low == len(tables) else tables[low]

    def _take(self, table: Table, topic_id: int, selection: Selection, *, wait: bool) -> None:
        row = self._row(table, topic_id, wait=wait)
        if row is None or not row.entry_count:
            raise Corrupt(f"{table.path.name} has no entries of topic {topic_id}")
        selection.sequence = max(selection.sequence, row.first_sequence)
        number = self._chunk_of(table, topic_id, row, selection.sequence, wait=wait)
        chunk_count = -(-row.entry_count // CHUNK_ENTRIES)
        while number < chunk_count and not selection.full:
            try:
                chunk = self._chunk(table, topic_id, row, number, wait=wait)
            except WouldBlock:
                if selection.found:
                    selection.full = True
                    return
                raise
            at = bisect_right(chunk.bases, selection.sequence) - 1
            selection.take(chunk.packed, max(0, at))
            self._places.put(topic_id, _Place(table.base, number, chunk))
            number += 1

    def _chunk_of(
        self, table: Table, topic_id: int, row: TableRow, sequence: int, *, wait: bool
    ) -> int:
        """Number of the chunk that holds `sequence`."""
        place = self._places.get(topic_id)
        last = -(-row.entry_count // CHUNK_ENTRIES) - 1
        if place is not None and place.table == table.base and place.chunk.end == sequence:
            return min(place.number + 1, last)
        low, high = 0, last
        while low < high:
            middle = (low + high + 1) // 2
            if self._chunk(table, topic_id, row, middle, wait=wait).bases[0] <= sequence:
                low = middle
            else:
                high = middle - 1
        return low

    def _chunk(
        self, table: Table, topic_id: int, row: TableRow, number: int, *, wait: bool
    ) -> _Chunk:
        key = (table.base, topic_id, number)
        chunk = self._chunks.get(key)
        if chunk is None:
            offset, size = table.chunk_place(row, number)
            packed = self._read(table, size, offset, wait=wait)
            table.check_chunk(topic_id, packed, size)
            chunk = _Chunk(packed)
            self._chunks.put(key, chunk)
        return chunk

    def _row(self, table: Table, topic_id: int, *, wait: bool) -> TableRow | None:
        key = (table.base, topic_id)
        row = self._rows.get(key)
        if row is None:
            row = self._index(table, wait=wait).row(topic_id)
            if row is not None:
                self._rows.put(key, row)
        return row

    def _index(self, table: Table, *, wait: bool) -> Index:
        index = self._indexes.get(table.base)
        if index is None:
            if not wait:
                raise WouldBlock
            try:
                index = table.load_index(self._file(table))
            except Corrupt:
                table = self._renew(table, wait=True)
                index = table.load_index(self._file(table))
            self.bytes_read += table.topic_count * INDEX.itemsize
            self._indexes.put(table.base, index)
        return index

    def _renew(self, table: Table, *, wait: bool) -> Table:
        """Have a bad table made again."""
        if not wait:
            raise WouldBlock
        renewed = self._rebuild(table.base)
        self.add(renewed)
        return renewed

    def _read(self, table: Table, size: int, offset: int, *, wait: bool) -> bytes | bytearray:
        if wait:
            return self._file(table).pread(size, offset)
        file = self._files.get(table.base)
        found = file.pread_nowait(size, offset) if file is not None else None
        if found is None:
            raise WouldBlock
        return found

    def _file(self, table: Table) -> File:
        file = self._files.get(table.base)
        if file is None:
            file = table.open()
            self._files.put(table.base, file)
        return file
