"""An index file: where the ids and keys of one stretch of the message log are.

Little-endian. Written once, under another name, synced, renamed; never changed. A stretch lies in
one segment; the file is named by its first byte and goes when the segment goes. Losing it costs
time only: it is made again from the message log.

    at  size  field
     0     4  magic          b"TIDX"
     4     4  header_crc     CRC-32C of bytes 8..96
     8     4  version        1
    12     4  guide_crc      CRC-32C of fences and bloom
    16     8  base           where the stretch starts in the message log
    24     8  end            where it ends
    32     8  first_stored_at_ms
    40     8  last_stored_at_ms
    48     8  range_count
    56     8  id_count
    64     8  key_count
    72     8  bloom_size     bytes; a power of two, or 0 where there are no ids
    80    16  spare          zero
    96     .  ranges, 40 bytes each, by hash, then first: hash of the producer, its first message
              number, topic_id, sequence, u64 each, count u32, 4 spare
     .     .  ids, 24 bytes each, by hash: hash, topic_id, sequence, u64 each
     .     .  keys, the same
     .     .  fences of ranges, ids, keys: per 512 rows 24 bytes: hash u64 and first u64 (0 but for
              ranges) of the first of them, CRC-32C of the 512 rows u32, 4 spare
     .     .  bloom of the ids' hashes: bit (hash + i * (hash >> 32 | 1)) modulo its bits, i 0..3,
              least significant bit of a byte first

Fences and bloom are read as a whole and kept; rows are read 512 at a time. Most questions about
ids are answered "not here" by the bloom alone.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from ternmq.core.errors import Corrupt
from ternmq.storage.files.disk import Disk, File, write_all
from ternmq.storage.files.paths import temporary
from ternmq.storage.files.whole_file import FRAME, check_version, pack_whole, read_whole
from ternmq.storage.index.rows import PLACE, RANGE, Hashes, IndexColumns, IndexRows

MAGIC = b"TIDX"
VERSION = 1
FIELDS = struct.Struct("<IIQQqqQQQQ16x")
HEADER_SIZE = 96
CHUNK_ROWS = 512
BLOOM_BITS = 16  # Per id: one question in 400 is asked of the rows for nothing.
PROBES = 4
FENCE = np.dtype([("hash", "<u8"), ("first", "<u8"), ("crc", "<u4"), ("spare", "<u4")])

assert FRAME.size + FIELDS.size == HEADER_SIZE
assert FENCE.itemsize == 24

RANGES, IDS, KEYS = 0, 1, 2
_KINDS = (RANGE, PLACE, PLACE)


def ordered(columns: IndexColumns) -> IndexColumns:
    """Sorted as the file wants them; by `take`, which lets other threads run meanwhile."""
    ranges = columns.ranges
    return IndexColumns(
        np.take(ranges, np.lexsort((ranges["first"], ranges["hash"]))),
        np.take(columns.ids, np.argsort(columns.ids["hash"], kind="stable")),
        np.take(columns.keys, np.argsort(columns.keys["hash"], kind="stable")),
    )


def write_index(
    disk: Disk, path: Path, *, span: tuple[int, int], times: tuple[int, int], columns: IndexColumns
) -> None:
    """Make the file; when this returns it is on disk under its name."""
    columns = ordered(columns)
    bloom = make_bloom(columns.ids["hash"])
    guide = b"".join([*(_fences(rows).tobytes() for rows in columns), bloom])
    counts = [len(rows) for rows in columns]
    fields = FIELDS.pack(VERSION, crc32c(guide), *span, *times, *counts, len(bloom))
    header = pack_whole(MAGIC, fields)
    beside = temporary(path)
    file = disk.open(beside, create=True)
    try:
        file.truncate(0)
        write_all(file, [header, *(rows.tobytes() for rows in columns), guide], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(beside, path)
    disk.sync_dir(path.parent)


def _fences(rows: IndexRows) -> NDArray[np.void]:
    first = rows[::CHUNK_ROWS]
    fences = np.zeros(len(first), dtype=FENCE)
    fences["hash"] = first["hash"]
    if rows.dtype == RANGE:
        fences["first"] = first["first"]
    for at in range(len(first)):
        fences["crc"][at] = crc32c(rows[at * CHUNK_ROWS : (at + 1) * CHUNK_ROWS].tobytes())
    return fences


def _probes(hashes: Hashes, bits: int) -> Iterator[Hashes]:
    step = (hashes >> np.uint64(32)) | np.uint64(1)
    for number in range(PROBES):
        yield (hashes + np.uint64(number) * step) & np.uint64(bits - 1)


def make_bloom(hashes: Hashes) -> bytes:
    if not len(hashes):
        return b""
    bits = 1 << max(6, (len(hashes) * BLOOM_BITS - 1).bit_length())
    table = np.zeros(bits, dtype=np.uint8)
    for probe in _probes(hashes, bits):
        table[probe] = 1
    return np.packbits(table, bitorder="little").tobytes()


class Guide:
    """What is kept in memory of one file: fences and bloom."""

    __slots__ = ("_bloom", "fences", "size")

    def __init__(self, fences: list[NDArray[np.void]], bloom: NDArray[np.uint8], size: int) -> None:
        self.fences = fences
        self._bloom = bloom
        self.size = size

    def maybe(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Which of these ids may be here."""
        bits = len(self._bloom) * 8
        found = np.full(len(hashes), bits > 0, dtype=np.bool_)
        if bits:
            for probe in _probes(hashes, bits):
                shift = (probe & np.uint64(7)).astype(np.uint8)
                found &= (self._bloom[probe >> np.uint64(3)] >> shift & 1).astype(np.bool_)
        return found


class IndexFile:
    """One file on disk, its header read and checked."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path
        file = self.open()
        header = file.pread(HEADER_SIZE, 0)
        what = f"the header of {path.name}"
        fields = FIELDS.unpack(read_whole(header, MAGIC, what, body_min=FIELDS.size))
        check_version(fields[0], VERSION, path.name)
        self._guide_crc, self.base, self.end = fields[1:4]
        self.first_stored_at_ms, self.last_stored_at_ms = fields[4:6]
        self.counts: tuple[int, int, int] = fields[6:9]
        self._bloom_size = fields[9]
        self._starts = [HEADER_SIZE]
        for kind, count in zip(_KINDS, self.counts, strict=True):
            self._starts.append(self._starts[-1] + kind.itemsize * count)
        chunks = sum(-(-count // CHUNK_ROWS) for count in self.counts)
        self._guide_size = chunks * FENCE.itemsize + self._bloom_size
        if file.size != self._starts[-1] + self._guide_size:
            raise Corrupt(f"{path.name} has {file.size} bytes; its header says something else")
        file.close()

    def open(self) -> File:
        return self._disk.open(self.path, create=False)

    def load_guide(self, file: File) -> Guide:
        packed = file.pread(self._guide_size, self._starts[-1])
        if crc32c(packed) != self._guide_crc:
            raise Corrupt(f"the fences of {self.path.name} do not match their checksum")
        fences, at = [], 0
        for count in self.counts:
            chunks = -(-count // CHUNK_ROWS)
            fences.append(np.frombuffer(packed, dtype=FENCE, count=chunks, offset=at))
            at += chunks * FENCE.itemsize
        bloom = np.frombuffer(packed, dtype=np.uint8, offset=at)
        return Guide(fences, bloom, self._guide_size)

    def everything(self) -> IndexColumns:
        """All rows, checked; for small files."""
        file = self.open()
        guide = self.load_guide(file)
        sections = [
            self._rows(file, guide.fences[at], at, 0, len(guide.fences[at]))
            for at in (RANGES, IDS, KEYS)
        ]
        return IndexColumns(*sections)

    def with_hash(self, file: File, guide: Guide, section: int, value: int) -> IndexRows:
        """The rows of a section that have this hash."""
        fences = guide.fences[section]
        if not len(fences):
            return np.empty(0, _KINDS[section])
        wanted = np.uint64(value)
        low = max(0, int(np.searchsorted(fences["hash"], wanted, side="left")) - 1)
        high = int(np.searchsorted(fences["hash"], wanted, side="right"))
        rows = self._rows(file, fences, section, low, max(high, low + 1))
        matching: IndexRows = rows[rows["hash"] == wanted]
        return matching

    def range_with(self, file: File, guide: Guide, producer: int, number: int) -> IndexRows:
        """The range of a producer that may hold its message `number`: the last that begins at or
        before it."""
        fences = guide.fences[RANGES]
        if not len(fences):
            return np.empty(0, RANGE)
        wanted = np.uint64(producer)
        low = int(np.searchsorted(fences["hash"], wanted, side="left"))
        high = int(np.searchsorted(fences["hash"], wanted, side="right"))
        at = low + int(np.searchsorted(fences["first"][low:high], number, side="right")) - 1
        rows = self._rows(file, fences, RANGES, max(0, at), max(0, at) + 1)
        return ranges_with(rows, producer, number)

    def _rows(
        self, file: File, fences: NDArray[np.void], section: int, low: int, high: int
    ) -> IndexRows:
        """Chunks `low` to `high` of a section, checked."""
        kind = _KINDS[section]
        end = min(high * CHUNK_ROWS, self.counts[section])
        size = (end - low * CHUNK_ROWS) * kind.itemsize
        packed = file.pread(size, self._starts[section] + low * CHUNK_ROWS * kind.itemsize)
        step = CHUNK_ROWS * kind.itemsize
        for number in range(low, high):
            part = memoryview(packed)[(number - low) * step : (number - low + 1) * step]
            if crc32c(part) != fences["crc"][number]:
                raise Corrupt(f"rows of {self.path.name} do not match their checksum")
        return np.frombuffer(packed, dtype=kind)


def ranges_with(rows: IndexRows, producer: int, number: int) -> IndexRows:
    """Of these ranges, those that hold the producer's message `number`."""
    mine = rows[(rows["hash"] == np.uint64(producer)) & (rows["first"] <= np.uint64(number))]
    found: IndexRows = mine[np.uint64(number) < mine["first"] + mine["count"]]
    return found
