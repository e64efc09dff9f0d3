"""Scans the message log for recovery: recognises batches, notes what a restart must know of them.

`Collector` turns batches into the 80-byte records of `entry`, in log order. A batch whose
stamp is whole but whose body is not still tells its topic and sequences, so its rows are noted as
lost and their sequences are not given out again. `walk` reads headers only: it is for sealed
segments, whose bytes were safe. The broker's knowledge of tags is not in the header, so a bloom
found by recovery is all ones: it excludes nothing.
"""

from collections.abc import Callable

from crc32c import crc32c

from ternmq.batch.half import CONTROL, NO_SEQUENCE, read_decision
from ternmq.batch.layout import (
    COUNT,
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    FIXED_SIZE,
    FRAMING,
    MAGIC,
    PRODUCER,
    PRODUCER_CRC_AT,
    ROWS_MAX,
    STAMP,
    STAMP_END,
    STAMP_START,
    STORED_SIZE_MAX,
    VERSION,
    Column,
    ColumnPart,
)
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, ProtocolError
from ternmq.core.units import KIB
from ternmq.storage.consume.consume_log import committed_record
from ternmq.storage.consume.entry import RECORD, Location
from ternmq.storage.log.segmented_log import SegmentedLog

BLOOM_ALL = 2**64 - 1
PRIORITY_UNKNOWN = 255  # May be any: who wants to know has to look.

_HEADER_READ = 4 * KIB
_CHUNK_READ = 256 * KIB


def check_stamp(data: memoryview, offset: int) -> int:
    """Check framing and stamp as found at `offset`; return the batch's size."""
    if len(data) < FIXED_SIZE:
        raise Corrupt(f"offset {offset}: {len(data)} bytes left, a batch header has {FIXED_SIZE}")
    magic, version, header_size, size, crc = FRAMING.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(f"offset {offset}: no batch starts here")
    if crc != crc32c(data[STAMP_START:STAMP_END], crc32c(data[:12])):
        raise Corrupt(f"offset {offset}: the batch header does not match its checksum")
    if version != VERSION:
        raise ProtocolError(
            f"offset {offset} holds a batch of version {version}, this is version {VERSION}: "
            "the data was written by a newer release, start that one"
        )
    if not FIXED_SIZE <= header_size <= size <= STORED_SIZE_MAX or size % 8:
        raise Corrupt(f"offset {offset}: batch sizes make no sense: {header_size}, {size}")
    (held,) = STAMP.unpack_from(data, STAMP_START)[:1]
    if held != offset:
        raise Corrupt(f"offset {offset} holds a batch written for {held}")
    return int(size)


class MessageFormat:
    """Batches as records of a segmented log."""

    magic = MAGIC
    header_size = FIXED_SIZE

    def size(self, data: memoryview) -> int:
        if len(data) < FIXED_SIZE:
            raise Corrupt(f"{len(data)} bytes left, a batch header has {FIXED_SIZE}")
        magic, _, _, size, _ = FRAMING.unpack_from(data)
        if magic != MAGIC or not FIXED_SIZE <= size <= STORED_SIZE_MAX or size % 8:
            raise Corrupt("no batch starts here")
        return int(size)

    def check(self, data: memoryview, offset: int) -> int:
        check_stamp(data, offset)
        (crc,) = COUNT.unpack_from(data, PRODUCER_CRC_AT)
        if crc != crc32c(data[PRODUCER_CRC_AT + 4 :]):
            raise Corrupt(f"offset {offset}: the batch does not match its checksum")
        return int(STAMP.unpack_from(data, STAMP_START)[6])


class Collector:
    """Packs one record per batch; `records` is in log order."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self.records = bytearray()

    def visit(self, offset: int, data: memoryview, problem: Corrupt | None) -> None:
        if problem is None:
            self.add(offset, data)
            return
        try:
            check_stamp(data, offset)
        except Corrupt:
            return  # Not even the header is known: whose rows these were shows later, as a gap.
        stamp = STAMP.unpack_from(data, STAMP_START)
        if stamp[2] == NO_SEQUENCE:
            return  # A half or control batch: what it decided shows as a gap.
        self.records += RECORD.pack(
            stamp[1],
            stamp[2],
            offset,
            len(data),
            _rows(data),
            stamp[4],
            0,
            0,
            Location.LOST,
            0,
            0,
            0,
            0,
        )

    def add(self, offset: int, data: memoryview) -> None:
        """Note the batch whose header starts `data`; its stamp has been checked."""
        stamp = STAMP.unpack_from(data, STAMP_START)
        producer = PRODUCER.unpack_from(data, PRODUCER_CRC_AT)
        (_, _, _, size, _) = FRAMING.unpack_from(data)
        location = Location.MESSAGE_LOG
        if stamp[2] == NO_SEQUENCE:
            location = Location.CONTROL if producer[1] & CONTROL else Location.HALF
        self.records += RECORD.pack(
            stamp[1],
            stamp[2],
            offset,
            size,
            producer[2],
            stamp[4],
            BLOOM_ALL,
            PRIORITY_UNKNOWN,
            location,
            0,
            producer[4],
            producer[5],
            producer[6],
        )
        if location == Location.CONTROL:
            whole = data[:size] if len(data) >= size else self._read(offset, size)
            for placed in read_decision(BatchView(whole)).placed:
                self.records += committed_record(placed, stamp[4])


def _rows(data: memoryview) -> int:
    """How many rows a batch with a bad checksum had, at most: its count and its body offsets
    both say so, and one flipped bit spoils only one of them."""
    fields = PRODUCER.unpack_from(data, PRODUCER_CRC_AT)
    count, topic_size, app_size, buffer_count = fields[2], fields[10], fields[11], fields[12]
    guesses = [count]
    at = (FIXED_SIZE + topic_size + app_size + 7) & ~7
    for _ in range(buffer_count):
        if at + DIRECTORY_ENTRY_SIZE > len(data):
            break
        column, part, _, _, _, size = DIRECTORY.unpack_from(data, at)
        if column == Column.BODY and part == ColumnPart.OFFSETS:
            guesses.append(size // 4 - 1)
        at += DIRECTORY_ENTRY_SIZE
    return max((guess for guess in guesses if 0 < guess <= ROWS_MAX), default=1)


def walk(source: SegmentedLog, start: int, end: int, collector: Collector) -> int:
    """Note every batch in `[start, end)` of one sealed segment by its header; return bytes read.

    Where a header does not check, the next one that does is looked for, byte by byte of the rest.
    """
    at, bytes_read = start, 0
    base = source.base_of(start)
    file = source.file(base)
    ahead = _HEADER_READ
    while at < end:
        data = file.pread(min(ahead, end - at), at - base)
        bytes_read += len(data)
        if len(data) < FIXED_SIZE:
            break
        view = memoryview(data)
        low = size = 0
        try:
            while len(view) - low >= FIXED_SIZE:
                size = check_stamp(view[low:], at + low)
                collector.add(at + low, view[low:])
                low += size
            at += low
        except Corrupt:
            at, read = resume(source, at + low, end)
            bytes_read += read
        ahead = _CHUNK_READ if size < _CHUNK_READ // 8 else _HEADER_READ
    return bytes_read


def resume(source: SegmentedLog, at: int, end: int) -> tuple[int, int]:
    """The next header after a bad one that checks, and how much was read to find it."""
    base = source.base_of(at)
    file = source.file(base)
    place, read = at + 8, 0
    while place < end:
        data = file.pread(min(4 * _CHUNK_READ, end - place), place - base)
        if len(data) < FIXED_SIZE:
            break
        read += len(data)
        low = data.find(MAGIC)
        while 0 <= low <= len(data) - FIXED_SIZE:
            if (place + low) % 8 == 0:
                try:
                    check_stamp(memoryview(data)[low:], place + low)
                except Corrupt:
                    pass
                else:
                    return place + low, read
            low = data.find(MAGIC, low + 1)
        place += (len(data) - FIXED_SIZE + 8) & ~7
    return end, read
