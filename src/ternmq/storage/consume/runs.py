"""Consume entries of one segment in memory: per topic packed bytes, no object per entry.

A `Run` holds a topic's entries (48 bytes each) and, for searching, their base sequences. `Runs`
holds the runs of a segment. While live appends go straight into a run, recovery adds through
`Runs.add`, which checks that sequences follow on: where they do not, rows are missing between two
batches, and an entry of location LOST stands in their place, so every sequence has an entry.
"""

from array import array
from bisect import bisect_right

from ternmq.storage.consume.entry import (
    ENTRY,
    ENTRY_SIZE,
    RECORD,
    RECORD_SIZE,
    WITHOUT_SEQUENCE,
    ConsumeEntry,
    Location,
)
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.recovery_report import LostRows

_SIZE_MAX = 2**32 - 1
_LOST = int(Location.LOST)  # A plain number: comparing enum members is slow.


class Run:
    """The entries of one topic, lowest sequence first."""

    __slots__ = ("bases", "packed")

    def __init__(self) -> None:
        self.bases = array("Q")
        self.packed = bytearray()

    def append(self, base_sequence: int, packed: Buffer) -> None:
        self.packed += packed
        self.bases.append(base_sequence)

    def find(self, sequence: int) -> int:
        """Number of the entry that holds `sequence`, which must not be before the first."""
        return bisect_right(self.bases, sequence) - 1

    def find_time(self, stored_at_ms: int) -> int | None:
        """Base sequence of the first entry stored at or after; None if all are older."""
        low, high = 0, len(self.bases)
        while low < high:
            middle = (low + high) // 2
            if ENTRY.unpack_from(self.packed, middle * ENTRY_SIZE)[4] < stored_at_ms:
                low = middle + 1
            else:
                high = middle
        return self.bases[low] if low < len(self.bases) else None


class Selection:
    """Entries being gathered for one reader, within its limits."""

    __slots__ = ("found", "full", "rows_left", "sequence", "size_left")

    def __init__(self, sequence: int, rows_max: int, size_max: int) -> None:
        self.sequence = sequence  # The next one wanted.
        self.rows_left = rows_max
        self.size_left = size_max
        self.found: list[ConsumeEntry] = []
        self.full = False

    def take(self, packed: Buffer, at: int) -> None:
        """Take entries from number `at` on, until the limits or the end of `packed`."""
        found, sequence = self.found, self.sequence
        rows_left, size_left = self.rows_left, self.size_left
        for place in range(at * ENTRY_SIZE, len(packed), ENTRY_SIZE):
            entry = ConsumeEntry._make(ENTRY.unpack_from(packed, place)[:8])
            size = entry[2] if entry[7] != _LOST else 0
            if found and size > size_left:
                self.full = True
                break
            found.append(entry)
            end = entry[0] + entry[3]
            rows_left -= end - sequence
            size_left -= size
            sequence = end
            if rows_left <= 0 or size_left <= 0:
                self.full = True
                break
        self.sequence, self.rows_left, self.size_left = sequence, rows_left, size_left


class Runs:
    """All runs of one segment while they are only in memory."""

    __slots__ = ("base", "ends", "firsts", "from_zero", "lost", "notes", "runs")

    def __init__(self, base: int, ends: dict[int, int], *, from_zero: bool) -> None:
        self.base = base
        self.runs: dict[int, Run] = {}
        self.ends = ends
        self.from_zero = from_zero  # The log still has its first byte, so every topic starts at 0.
        self.firsts: dict[int, int] = {}
        self.lost: list[LostRows] = []
        self.notes: list[str] = []

    def add_records(self, records: Buffer) -> None:
        """Add packed records in log order, filling in what is missing between them."""
        runs, ends = self.runs, self.ends
        at = 0
        for fields in RECORD.iter_unpack(records):
            topic_id, base = fields[0], fields[1]
            if fields[8] in WITHOUT_SEQUENCE:
                at += RECORD_SIZE
                continue
            run = runs.get(topic_id)
            if run is not None and ends[topic_id] == base and fields[8] != _LOST:
                run.append(base, records[at + 8 : at + 8 + ENTRY_SIZE])
                ends[topic_id] = base + fields[4]
            else:
                self.add(topic_id, ConsumeEntry._make(fields[1:9]))
            at += RECORD_SIZE

    def add(self, topic_id: int, entry: ConsumeEntry) -> None:
        """Add one entry found by recovery."""
        base = entry.base_sequence
        end = self.ends.get(topic_id)
        if end is None:
            end = 0 if self.from_zero else base
            if end:
                self.firsts[topic_id] = end
        if base < end:
            end = self._shrink_lost(topic_id, base, end)
        if base < end:
            self.notes.append(
                f"topic {topic_id}: offset {entry.offset} repeats sequence {base}, below {end}"
            )
            return
        if base > end:
            at = (
                entry.offset | 1
            )  # No batch starts at an odd offset, so it cannot be taken for one.
            gap = ConsumeEntry(end, at, 0, base - end, entry.stored_at_ms, 0, 0, Location.LOST)
            self._put(topic_id, gap)
        self._put(topic_id, entry)

    def _put(self, topic_id: int, entry: ConsumeEntry) -> None:
        run = self.runs.get(topic_id)
        if run is None:
            run = self.runs[topic_id] = Run()
        run.append(entry.base_sequence, pack(entry))
        self.ends[topic_id] = end = entry.base_sequence + entry.count
        if entry.location == Location.LOST:
            self.lost.append(LostRows(topic_id=topic_id, first=entry.base_sequence, end=end))

    def _shrink_lost(self, topic_id: int, base: int, end: int) -> int:
        """A lost batch had fewer rows than it was taken to have at most: correct its entry."""
        run = self.runs.get(topic_id)
        if run is None:
            return end
        place = len(run.packed) - ENTRY_SIZE
        last = ConsumeEntry._make(ENTRY.unpack_from(run.packed, place)[:8])
        if last.location != Location.LOST or last.base_sequence >= base:
            return end
        run.packed[place:] = pack(last._replace(count=base - last.base_sequence))
        self.lost = [
            rows
            if (rows.topic_id, rows.first) != (topic_id, last.base_sequence)
            else LostRows(topic_id=topic_id, first=rows.first, end=base)
            for rows in self.lost
        ]
        return base


def pack(entry: ConsumeEntry) -> bytes:
    """Bytes of an entry, its checksum still zero."""
    return ENTRY.pack(*entry[:2], min(entry[2], _SIZE_MAX), *entry[3:], 0)
