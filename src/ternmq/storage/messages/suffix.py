"""The suffix of the message log: written, not yet visible to readers.

The suffix is what lies at or above the safe offset: it may still be cut off, so nothing is derived
from it. When the safe offset moves, `Suffix.next` gives the batches that it passes, as the appends
that a master commits. Batches that were just received are held in memory, within a bound; others
(after a restart, or far behind) are read from the log, a piece at a time.

On the loop; a piece is small enough for that, and was written or scanned a short time before.
"""

from collections import deque
from typing import NamedTuple

from ternmq.batch.check import describe_stored
from ternmq.batch.half import CONTROL, NO_SEQUENCE, read_decision, read_info
from ternmq.batch.layout import (
    FIXED_SIZE,
    PRODUCER,
    PRODUCER_CRC_AT,
    STAMP,
    STAMP_START,
)
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, ProtocolError, TooLarge
from ternmq.core.units import MIB
from ternmq.storage.consume.batch_scan import BLOOM_ALL, PRIORITY_UNKNOWN, MessageFormat
from ternmq.storage.log.append import Append, Ending, HalfMark
from ternmq.storage.log.replica_input import LogRecord
from ternmq.storage.log.segmented_log import SegmentedLog

HELD_SIZE_MAX = 32 * MIB
PIECE_SIZE_MAX = 4 * MIB
PIECE_BATCHES_MAX = 1_000


class Suffix:
    """Batches between the safe offset and the end."""

    def __init__(self, source: SegmentedLog) -> None:
        self._log = source
        self._held: deque[LogRecord] = deque()
        self._held_size = 0

    def hold(self, records: list[LogRecord]) -> None:
        """Records were received; keep what fits, so that it need not be read again."""
        for record in records:
            if self._held_size >= HELD_SIZE_MAX:
                return
            self._held.append(record)
            self._held_size += len(record[1])

    def cut(self, end: int) -> None:
        """The log ends here."""
        while self._held and self._held[-1][0] >= end:
            self._held_size -= len(self._held.pop()[1])

    def next(self, at: int, to: int) -> list[Append]:
        """Batches from `at` on that end at or before `to`, as many as make a piece; none at the
        end. Raises `Corrupt`."""
        while self._held and self._held[0][0] < at:
            self._held_size -= len(self._held.popleft()[1])
        appends: list[Append] = []
        size = 0
        while self._held and len(appends) < PIECE_BATCHES_MAX and size < PIECE_SIZE_MAX:
            offset, batch = self._held[0]
            if offset != at + size or offset + len(batch) > to:
                break
            self._held.popleft()
            self._held_size -= len(batch)
            appends.append(append_of(offset, batch))
            size += len(batch)
        return appends or self._read(at, to)

    def _read(self, at: int, to: int) -> list[Append]:
        if at >= to:
            return []
        form = MessageFormat()
        view = memoryview(self._log.read_some(at, min(to - at, PIECE_SIZE_MAX)))
        if len(view) >= FIXED_SIZE and form.size(view) > len(view):
            view = memoryview(self._log.read(at, form.size(view)))
        appends: list[Append] = []
        low = 0
        while len(view) - low >= FIXED_SIZE and len(appends) < PIECE_BATCHES_MAX:
            size = form.size(view[low:])
            if low + size > len(view):
                break
            batch = view[low : low + size]
            form.check(batch, at + low)
            appends.append(append_of(at + low, batch))
            low += size
        if not appends:
            raise Corrupt(f"the log at offset {at} has no whole batch before {to}", offset=at)
        return appends


def append_of(offset: int, batch: memoryview) -> Append:
    """A stored and checked batch as it was when its master committed it."""
    stamp = STAMP.unpack_from(batch, STAMP_START)
    producer = PRODUCER.unpack_from(batch, PRODUCER_CRC_AT)
    half = stamp[2] == NO_SEQUENCE
    seen = _look_into(batch, half=half, control=half and bool(producer[1] & CONTROL))
    return Append(
        batch=batch,
        topic_id=stamp[1],
        count=producer[2],
        received_at_ms=stamp[5],
        client_ip=stamp[7],
        client_port=stamp[9],
        server_ip=stamp[8],
        server_port=stamp[10],
        tag_bloom=seen.tag_bloom,
        priority=seen.priority,
        searchable=seen.searchable,
        special=seen.special,
        producer=(producer[4], producer[5]),
        first_sequence=producer[6],
        offset=offset,
        base_sequence=stamp[2],
        stored_at_ms=stamp[4],
    )


class _BatchLook(NamedTuple):
    """What rows of a batch say together; by default it excludes nothing, and the index looks."""

    tag_bloom: int = BLOOM_ALL
    priority: int = PRIORITY_UNKNOWN
    searchable: bool = True
    special: HalfMark | Ending | None = None


def _look_into(batch: memoryview, *, half: bool, control: bool) -> _BatchLook:
    if control:
        decision = read_decision(BatchView(batch))
        return _BatchLook(
            special=Ending(
                kind=decision.kind, transactions=decision.transactions, halves=[], decision=decision
            )
        )
    try:
        incoming = describe_stored(batch, half=half)
    except (ProtocolError, TooLarge):
        if half:
            raise
        return _BatchLook()  # One of the broker's own.
    mark = HalfMark(info=read_info(BatchView(batch)), app=incoming.app) if half else None
    return _BatchLook(incoming.tag_bloom, incoming.priority, incoming.searchable, mark)


def ends_of(appends: list[Append], known: dict[int, int]) -> dict[int, int]:
    """Topic id to the sequence after these. Raises `Corrupt` where they do not follow on what is
    `known`: then this log and its derived state are not of one history."""
    ends: dict[int, int] = {}
    for append in appends:
        special = append.special
        if special is None:
            _follow(ends, known, append.topic_id, append.base_sequence, append.count)
        elif isinstance(special, Ending) and special.decision is not None:
            for placed in special.decision.placed:
                _follow(ends, known, placed.topic_id, placed.sequence, placed.count)
    return ends


def _follow(
    ends: dict[int, int], known: dict[int, int], topic_id: int, sequence: int, count: int
) -> None:
    expected = ends.get(topic_id, known.get(topic_id, sequence))
    if sequence != expected:
        raise Corrupt(
            f"topic {topic_id} goes on at sequence {sequence}, but ends at {expected}",
            topic_id=topic_id,
            sequence=sequence,
            expected=expected,
        )
    ends[topic_id] = sequence + count
