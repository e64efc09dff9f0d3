"""A page of the pull log: whole records of its safe part, for archive and trace; or of one row.

Reads the files in chunks, walks from record to record and leaves snapshots out. Bytes that do not
check are passed over up to the next record that does, as a replay passes them over, and named.
Never reads what is not on disk yet, so nobody learns of a delivery that a power cut could take
back.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ternmq.core.errors import Corrupt
from ternmq.core.units import KIB, MIB
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.pull.record import (
    FIELDS,
    FRAME,
    HEADER_SIZE,
    MAGIC,
    RANGE,
    PullFormat,
    PullKind,
)

CHUNK_SIZE = MIB
ROW_CHUNK_SIZE = 128 * KIB
"""A thread that looks for one row lets others run after so many bytes."""
CLOCK_SLACK_MS = 60_000
"""So much may the time of day have been set back."""
NOT_KNOWN = 1 << 61
OF_WHOLE_LANES = frozenset(
    {PullKind.GROUP_MADE, PullKind.GROUP_DELETED, PullKind.RESET, PullKind.CUT}
)


class PullRow(NamedTuple):
    """The row that is looked for."""

    lane_id: int
    sequence: int


@dataclass(slots=True)
class PullPage:
    """Records, and where to go on."""

    first: int
    end: int
    following: int
    records: bytes = b""
    group_ids: set[int] = field(default_factory=set)
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Bytes that were passed over: from, to."""


def read_page(
    log: SegmentedLog,
    position: int,
    end: int,
    size_max: int,
    *,
    safe: int,
    row: PullRow | None = None,
) -> PullPage:
    """About `size_max` bytes of records from `position` to `end` (0: what is safe). With a row only
    records that touch it, from about so many bytes of the log. Blocks."""
    chunk_size = CHUNK_SIZE if row is None else ROW_CHUNK_SIZE
    first = log.start
    stop = min(end, safe) if end else safe
    at = min(max(position, first), stop)
    group_ids: set[int] = set()
    damaged: list[tuple[int, int]] = []
    pieces: list[bytes] = []
    size = 0
    while at < stop and size < size_max:
        base = log.base_of(at)
        limit = min(stop, log.segment_end(log.bases.index(base)))
        chunk = log.file(base).pread(min(chunk_size, limit - at), at - base)
        used, found = _walk(memoryview(chunk), at, group_ids, row)
        if not used:  # A record that is longer than a chunk.
            whole = log.file(base).pread(_size_of(chunk, limit - at), at - base)
            used, found = _walk(memoryview(whole), at, group_ids, row)
        if not used:
            used = _to_next(chunk, at, limit)
            since = damaged.pop()[0] if damaged and damaged[-1][1] == at else at
            damaged.append((since, at + used))
        at += used
        pieces += found
        size += used if row is not None else sum(map(len, found))
    return PullPage(
        first=first,
        end=safe,
        following=at,
        records=b"".join(pieces),
        group_ids=group_ids,
        damaged=damaged,
    )


def position_at(log: SegmentedLog, since_ms: int) -> int:
    """Before everything that was written at this time or later: where a segment begins. Blocks."""
    bases = log.bases
    low, high = 0, len(bases) - 1
    while low < high:
        middle = (low + high + 1) // 2
        written = _written_at(log, bases[middle])
        if written is not None and written <= since_ms - CLOCK_SLACK_MS:
            low = middle
        else:
            high = middle - 1
    return bases[low]


def kept_since_ms(log: SegmentedLog) -> int:
    """When the first record was written that is kept; 0: it is the very first. Blocks."""
    first = log.start
    if first == 0:
        return 0
    written = _written_at(log, first)
    return NOT_KNOWN if written is None else written


def _written_at(log: SegmentedLog, base: int) -> int | None:
    """When the first record of a segment was written."""
    header = log.file(base).pread(HEADER_SIZE, 0)
    if len(header) < HEADER_SIZE or not header.startswith(MAGIC):
        return None
    return int(FIELDS.unpack_from(header, FRAME.size)[8])


def _touches(record: memoryview, fields: tuple[Any, ...], row: PullRow) -> bool:
    if fields[7] != row.lane_id:
        return False
    if fields[1] in OF_WHOLE_LANES:
        return True
    ranges = record[HEADER_SIZE : HEADER_SIZE + fields[3] * RANGE.size]
    return any(first <= row.sequence < end for first, end, _ in RANGE.iter_unpack(ranges))


def _walk(
    data: memoryview, offset: int, group_ids: set[int], row: PullRow | None
) -> tuple[int, list[bytes]]:
    """(bytes passed, records) from the start of `data` as far as whole, good records go."""
    form = PullFormat()
    found: list[bytes] = []
    at = 0
    while at < len(data):
        try:
            size = form.size(data[at:])
            if at + size > len(data):
                break
            form.check(data[at : at + size], offset + at)
        except Corrupt:
            break
        fields = FIELDS.unpack_from(data, at + FRAME.size)
        wanted = row is None or _touches(data[at : at + size], fields, row)
        if wanted and fields[1] != PullKind.SNAPSHOT:
            found.append(bytes(data[at : at + size]))
            group_ids.add(fields[6])
        at += size
    return at, found


def _size_of(chunk: bytes, room: int) -> int:
    try:
        return min(PullFormat().size(memoryview(chunk)), room)
    except Corrupt:
        return min(len(chunk), room)


def _to_next(chunk: bytes, offset: int, limit: int) -> int:
    """How far it is to the next place that could start a record."""
    at = 8
    while (at := chunk.find(MAGIC, at)) >= 0:
        if (offset + at) % 8 == 0:
            return at
        at += 1
    return min(max(8, len(chunk) - 8 & ~7), limit - offset)
