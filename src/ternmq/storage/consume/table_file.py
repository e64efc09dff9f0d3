"""The consume table of a sealed segment: where the batches of each topic are, in one file.

Little-endian. Written once, under another name, synced, renamed; never changed.

    at  size  field
     0     4  magic          b"TTBL"
     4     4  header_crc     CRC-32C of bytes 8..80
     8     4  version        1
    12     4  index_crc      CRC-32C of the index
    16     8  base           where the segment starts in the message log
    24     8  end            where it ends
    32     8  entry_count
    40     8  topic_count
    48     8  first_stored_at_ms
    56     8  last_stored_at_ms
    64    16  spare          zero
    80     .  entries, 48 bytes each, by topic id, then by sequence (see `entry`)
     .     .  index, 40 bytes per topic, by topic id:
              topic_id, first_entry, entry_count, first_sequence, end_sequence, u64 each

The index names every topic known when the segment ended, also those without a batch in it (entry
count 0): so the last table alone tells where every topic's sequence goes on, and the first one
where it begins, however many older ones are gone.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from ternmq.core.errors import Corrupt
from ternmq.storage.consume.entry import ENTRY, ENTRY_SIZE, check_entries, seal_entries
from ternmq.storage.files.disk import Disk, File, write_all
from ternmq.storage.files.paths import temporary
from ternmq.storage.files.whole_file import FRAME, check_version, pack_whole, read_whole

MAGIC = b"TTBL"
VERSION = 1
FIELDS = struct.Struct("<IIQQQQqq16x")
HEADER_SIZE = 80
INDEX = np.dtype(
    [
        ("topic_id", "<i8"),
        ("first_entry", "<i8"),
        ("entry_count", "<i8"),
        ("first_sequence", "<i8"),
        ("end_sequence", "<i8"),
    ]
)
CHUNK_ENTRIES = 256

assert FRAME.size + FIELDS.size == HEADER_SIZE
assert INDEX.itemsize == 40


class TableRow(NamedTuple):
    """One topic of the index."""

    first_entry: int
    entry_count: int
    first_sequence: int
    end_sequence: int


class Index:
    """The loaded index of one table."""

    __slots__ = ("_rows", "topic_ids")

    def __init__(self, rows: NDArray[np.void]) -> None:
        self._rows = rows
        self.topic_ids = np.ascontiguousarray(rows["topic_id"])

    def row(self, topic_id: int) -> TableRow | None:
        at = int(np.searchsorted(self.topic_ids, topic_id))
        if at >= len(self.topic_ids) or self.topic_ids[at] != topic_id:
            return None
        return TableRow(*self._rows[at].tolist()[1:])

    def ends(self) -> dict[int, int]:
        """Topic id to the sequence after its last."""
        ends: list[int] = self._rows["end_sequence"].tolist()
        return dict(zip(self.topic_ids.tolist(), ends, strict=True))

    def firsts(self) -> dict[int, int]:
        """Topic id to its first sequence here."""
        firsts: list[int] = self._rows["first_sequence"].tolist()
        return dict(zip(self.topic_ids.tolist(), firsts, strict=True))


class Table:
    """One file, opened when needed. `base`, `end` and times stay in memory."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path
        file = self.open()
        header = file.pread(HEADER_SIZE, 0)
        what = f"the header of {path.name}"
        fields = FIELDS.unpack(read_whole(header, MAGIC, what, body_min=FIELDS.size))
        version, self._index_crc, self.base, self.end, self.entry_count, self.topic_count = fields[
            :6
        ]
        self.first_stored_at_ms, self.last_stored_at_ms = fields[6:]
        check_version(version, VERSION, path.name)
        self.index_at = HEADER_SIZE + self.entry_count * ENTRY_SIZE
        if file.size != self.index_at + self.topic_count * INDEX.itemsize:
            raise Corrupt(f"{path.name} has {file.size} bytes; its header says something else")
        file.close()

    def open(self) -> File:
        return self._disk.open(self.path, create=False)

    def load_index(self, file: File) -> Index:
        packed = file.pread(self.topic_count * INDEX.itemsize, self.index_at)
        if crc32c(packed) != self._index_crc:
            raise Corrupt(f"the index of {self.path.name} does not match its checksum")
        return Index(np.frombuffer(packed, dtype=INDEX))

    def chunk_place(self, row: TableRow, number: int) -> tuple[int, int]:
        """(offset in the file, size) of chunk `number` of a topic's entries."""
        first = number * CHUNK_ENTRIES
        count = min(CHUNK_ENTRIES, row.entry_count - first)
        return HEADER_SIZE + (row.first_entry + first) * ENTRY_SIZE, count * ENTRY_SIZE

    def check_chunk(self, topic_id: int, packed: bytes | bytearray, size: int) -> None:
        if len(packed) != size:
            raise Corrupt(f"{self.path.name} ends inside the entries of topic {topic_id}")
        check_entries(topic_id, packed)


class Contents(NamedTuple):
    """What goes into a new table."""

    base: int
    end: int
    topics: list[tuple[int, bytes | bytearray]]
    """(topic id, packed entries), by topic id."""
    before: dict[int, int]
    """Topics known before this segment and where their sequences stood."""


def write_table(disk: Disk, path: Path, contents: Contents) -> None:
    """Make the file; when this returns it is on disk under its name."""
    index, entries = _index_rows(contents), b"".join(packed for _, packed in contents.topics)
    rows = np.array(bytearray(entries), dtype=np.uint8).reshape(-1, ENTRY_SIZE)
    counts = [len(packed) // ENTRY_SIZE for _, packed in contents.topics]
    topic_ids = np.repeat(np.array([t for t, _ in contents.topics], dtype=np.int64), counts)
    seal_entries(topic_ids, rows)
    packed_index = index.tobytes()
    times = _times(contents.topics)
    fields = FIELDS.pack(
        VERSION, crc32c(packed_index), contents.base, contents.end, len(rows), len(index), *times
    )
    header = pack_whole(MAGIC, fields)
    beside = temporary(path)
    file = disk.open(beside, create=True)
    try:
        file.truncate(0)
        write_all(file, [header, rows.tobytes(), packed_index], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(beside, path)
    disk.sync_dir(path.parent)


def _times(topics: Iterable[tuple[int, bytes | bytearray]]) -> tuple[int, int]:
    first, last = 2**62, 0
    for _, packed in topics:
        first = min(first, ENTRY.unpack_from(packed)[4])
        last = max(last, ENTRY.unpack_from(packed, len(packed) - ENTRY_SIZE)[4])
    return (first if last else 0), last


def _index_rows(contents: Contents) -> NDArray[np.void]:
    rows: list[tuple[int, int, int, int, int]] = []
    at = 0
    here = set()
    for topic_id, packed in contents.topics:
        count = len(packed) // ENTRY_SIZE
        first = ENTRY.unpack_from(packed)[0]
        last = ENTRY.unpack_from(packed, len(packed) - ENTRY_SIZE)
        rows.append((topic_id, at, count, first, last[0] + last[3]))
        here.add(topic_id)
        at += count
    for topic_id, end in contents.before.items():
        if topic_id not in here:
            rows.append((topic_id, 0, 0, end, end))
    rows.sort()
    return np.array(rows, dtype=INDEX)
