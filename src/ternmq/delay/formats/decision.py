"""The bytes of one decision about rows of an hour, as a dispatch log holds it.

A row is named by its number in the hour's schedule log (0, 1, 2 ...). Little-endian.

    at  size  field
     0     4  magic           b"DISP"
     4     4  crc             CRC-32C of bytes 8..size
     8     4  size            all of it; a multiple of 8
    12     1  kind            1 intent, 2 done, 3 released, 4 cancelled, 5 moved; only in the
                              journal: 6 gone, 7 begun
    13     1  form            0 the numbers are rows, 1 they are ranges: first, end, first, end ...
    14     2  group_size
    16     8  offset          where this record starts in its file
    24     8  durable_to      every byte of the file below this was on disk when this was written;
                              0 since this is derived from the journal: checkpoints say it
    32     8  at_ms           when
    40     8  topic_id
    48     8  producer_start  intent: who sends it; done, released: 0
    56     8  producer_random
    64     8  first_sequence  intent: the producer's number of the first row
    72     8  value           done, released: the intent's offset; moved: the new due time, ms;
                              gone: no message is stored before this time any more; begun: the
                              length of an hour, ms (`first_sequence`: the epoch)
    80     4  rows
    84     4  numbers         how many follow
    88     .  numbers, u32 each; the broker group's name, UTF-8; zeros up to a multiple of 8

What a crash leaves, and what a start makes of it (the synced intent in the journal, on
every member that is in sync, is the point of decision):

    crash                                  found                      then
    before the intent is synced            nothing, or a torn record  the row is pending
    after it, before the broker has it     an intent without a done   sent again to that group only
    after the broker has it, before done   the same                   sent again, recognised there
    after done                             done                       nothing
    after a refusal, before released       an intent without a done   sent again, refused again
    after released                         released                   the row is pending
    before a cancel is synced              nothing, or a torn record  the row is pending
    after it                               cancelled                  never sent

`done` need not be synced: losing it costs one repeat, which the broker recognises. A record that
takes rows back (released) lies before the next intent for them, so it is never lost without it.
"""

import struct
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from crc32c import crc32c

from ternmq.batch.layout import Buffer
from ternmq.core.errors import Corrupt
from ternmq.core.units import MIB, align8

MAGIC = b"DISP"
HEADER = struct.Struct("<4sIIBBHQQqQQQQqII")
RECORD_SIZE_MAX = 4 * MIB

assert HEADER.size == 88


class DecisionKind(IntEnum):
    """What is decided."""

    INTENT = 1
    DONE = 2
    RELEASED = 3
    CANCELLED = 4
    MOVED = 5
    GONE = 6
    BEGUN = 7


def no_rows() -> np.ndarray:
    return np.zeros(0, np.uint32)


@dataclass(slots=True, kw_only=True)
class Decision:
    """One record. `offset` is filled in when it is written."""

    kind: DecisionKind
    at_ms: int
    topic_id: int = 0
    rows: np.ndarray = field(default_factory=no_rows)
    """u32, in the order in which they go out."""
    producer: tuple[int, int] = (0, 0)
    first_sequence: int = 0
    value: int = 0
    group: str = ""
    offset: int = -1


def encode(decision: Decision, *, offset: int, durable_to: int) -> bytes:
    numbers, form = _numbers(decision.rows)
    group = decision.group.encode()
    size = align8(HEADER.size + 4 * len(numbers) + len(group))
    header = HEADER.pack(
        MAGIC,
        0,
        size,
        decision.kind,
        form,
        len(group),
        offset,
        durable_to,
        decision.at_ms,
        decision.topic_id,
        *decision.producer,
        decision.first_sequence,
        decision.value,
        len(decision.rows),
        len(numbers),
    )
    record = bytearray(header + numbers.tobytes() + group)
    record += bytes(size - len(record))
    struct.pack_into("<I", record, 4, crc32c(memoryview(record)[8:]))
    return bytes(record)


def decode(data: Buffer) -> Decision:
    """A record that `DispatchFormat.check` has passed."""
    fields = HEADER.unpack_from(data)
    kind, form, group_size, offset, at_ms, topic_id = *fields[3:7], fields[8], fields[9]
    count, numbers = fields[14], fields[15]
    values = np.frombuffer(data, "<u4", numbers, HEADER.size)
    group_at = HEADER.size + 4 * numbers
    rows = _expand(values) if form else values.copy()
    if len(rows) != count:
        raise Corrupt(f"a dispatch record names {len(rows)} rows, not {count}")
    return Decision(
        kind=DecisionKind(kind),
        at_ms=at_ms,
        topic_id=topic_id,
        rows=rows,
        producer=(fields[10], fields[11]),
        first_sequence=fields[12],
        value=fields[13],
        group=bytes(memoryview(data)[group_at : group_at + group_size]).decode(),
        offset=offset,
    )


class DispatchFormat:
    """How recovery recognises these records: `storage.log.recovery.LogFormat`."""

    magic = MAGIC
    header_size = HEADER.size

    def size(self, data: memoryview) -> int:
        if len(data) < HEADER.size:
            raise Corrupt(f"{len(data)} bytes left, a dispatch record has {HEADER.size}")
        magic, _, size = struct.unpack_from("<4sII", data)
        if magic != MAGIC or not HEADER.size <= size <= RECORD_SIZE_MAX or size % 8:
            raise Corrupt("no dispatch record starts here")
        return int(size)

    def check(self, data: memoryview, offset: int) -> int:
        fields = HEADER.unpack_from(data)
        if fields[1] != crc32c(data[8:]):
            raise Corrupt(f"offset {offset}: the dispatch record does not match its checksum")
        if fields[6] != offset:
            raise Corrupt(f"offset {offset} holds a dispatch record written for {fields[6]}")
        return int(fields[7])


def _numbers(rows: np.ndarray) -> tuple[np.ndarray, int]:
    """The shorter of both forms."""
    if len(rows) < 3:
        return rows.astype("<u4"), 0
    breaks = np.flatnonzero(np.diff(rows) != 1)
    if 2 * (len(breaks) + 1) >= len(rows):
        return rows.astype("<u4"), 0
    ranges = np.empty(2 * (len(breaks) + 1), "<u4")
    ranges[0] = rows[0]
    ranges[2::2] = rows[breaks + 1]
    ranges[1:-1:2] = rows[breaks] + 1
    ranges[-1] = rows[-1] + 1
    return ranges, 1


def _expand(ranges: np.ndarray) -> np.ndarray:
    firsts, ends = ranges[::2].astype(np.int64), ranges[1::2].astype(np.int64)
    sizes = ends - firsts
    before = np.cumsum(sizes) - sizes
    return (np.repeat(firsts - before, sizes) + np.arange(sizes.sum())).astype("<u4")
