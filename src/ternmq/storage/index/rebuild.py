"""Rebuilds index rows from the message log alone.

Reads the log from one offset to another, window by window, and hands on whole batches. What does
not check is passed over: recovery has reported it. Runs on a thread of its own; only bytes that
are safe are read.
"""

from collections.abc import Iterator

from ternmq.batch.layout import FIXED_SIZE
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt
from ternmq.core.units import MIB
from ternmq.storage.consume.batch_scan import Collector, MessageFormat, resume
from ternmq.storage.consume.entry import RECORD, Location
from ternmq.storage.index.rows import (
    IndexColumns,
    PlaceColumns,
    ranges_of,
    searchable,
)
from ternmq.storage.log.segmented_log import SegmentedLog

WINDOW_SIZE = 8 * MIB


def batches(source: SegmentedLog, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
    """Every whole batch from `start`, which must be a batch's first byte, to `end`."""
    at, form = max(start, source.start), MessageFormat()
    while at < end:
        base = source.base_of(at)
        after = [later for later in source.bases if later > at]
        limit = min(after[0] if after else end, end)
        window = memoryview(source.file(base).pread(min(WINDOW_SIZE, limit - at), at - base))
        low = 0
        while len(window) - low >= FIXED_SIZE:
            try:
                size = form.size(window[low:])
                if low + size > len(window):
                    break
                form.check(window[low : low + size], at + low)
            except Corrupt:
                size = resume(source, at + low, limit)[0] - at - low
            else:
                yield at + low, window[low : low + size]
            low += size
        at = at + low if low else limit  # Nothing whole in a window: what is left is damaged.


class RebuiltRows:
    """Rows gathered from batches of the log."""

    def __init__(self, source: SegmentedLog) -> None:
        self._source = source
        self._collector = Collector(source.read)
        self._places = PlaceColumns()
        self._batches = 0

    def add(self, offset: int, batch: memoryview) -> None:
        known = len(self._collector.records)
        self._collector.add(offset, batch)
        self._batches += 1
        for record in RECORD.iter_unpack(self._collector.records[known:]):
            if record[8] > Location.COMMITTED:
                continue
            try:
                own = record[2] == offset
                view = BatchView(batch if own else self._source.read(record[2], record[3]))
            except Corrupt:
                continue  # A half batch that is damaged, or gone with its segment.
            if not searchable(view):
                continue
            self._places.add(view, record[0], record[1])

    @property
    def row_count(self) -> int:
        return self._batches + self._places.row_count

    def columns(self) -> IndexColumns:
        return IndexColumns(ranges_of(self._collector.records), *self._places.rows())

    def times(self) -> tuple[int, int]:
        return times_of(self._collector.records)


def times_of(records: bytes | bytearray) -> tuple[int, int]:
    """First and last stored time of packed records, which are in log order; (0, 0) for none."""
    if not records:
        return 0, 0
    return RECORD.unpack_from(records)[5], RECORD.unpack_from(records, len(records) - RECORD.size)[
        5
    ]
