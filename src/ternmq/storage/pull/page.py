"""A page of the pull log: whole records of its safe part, for archive and trace.

Reads the files in chunks, walks from record to record and leaves snapshots out. Bytes that do not
check are passed over up to the next record that does, as a replay passes them over, and named.
Never reads what is not on disk yet, so nobody learns of a delivery that a power cut could take
back.
"""

from dataclasses import dataclass, field

from ternmq.core.errors import Corrupt
from ternmq.core.units import MIB
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.pull.record import FIELDS, FRAME, MAGIC, PullFormat, PullKind

CHUNK_SIZE = MIB


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

    def pass_over(self, start: int, end: int) -> None:
        if self.damaged and self.damaged[-1][1] == start:
            start = self.damaged.pop()[0]
        self.damaged.append((start, end))


def read_page(log: SegmentedLog, position: int, end: int, size_max: int, *, safe: int) -> PullPage:
    """About `size_max` bytes of records from `position` to `end` (0: what is safe). Blocks."""
    first = log.start
    stop = min(end, safe) if end else safe
    at = min(max(position, first), stop)
    page = PullPage(first=first, end=safe, following=at)
    pieces: list[bytes] = []
    size = 0
    while page.following < stop and size < size_max:
        at = page.following
        base = log.base_of(at)
        limit = min(stop, log.segment_end(log.bases.index(base)))
        chunk = log.file(base).pread(min(CHUNK_SIZE, limit - at), at - base)
        used, found = _walk(memoryview(chunk), at, page.group_ids)
        if not used:  # A record that is longer than a chunk.
            whole = log.file(base).pread(_size_of(chunk, limit - at), at - base)
            used, found = _walk(memoryview(whole), at, page.group_ids)
        if not used:
            used = _to_next(chunk, at, limit)
            page.pass_over(at, at + used)
        page.following = at + used
        pieces += found
        size += sum(map(len, found))
    page.records = b"".join(pieces)
    return page


def _walk(data: memoryview, offset: int, group_ids: set[int]) -> tuple[int, list[bytes]]:
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
        if fields[1] != PullKind.SNAPSHOT:
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
