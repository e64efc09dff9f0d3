"""The bytes of the decisions journal: every decision, with the hour it is about.

A record is a frame around the record that its hour's dispatch log gets (`decision`), which has
its place in that file already. Little-endian.

    at  size  field
     0     4  magic       b"DJRN"
     4     4  crc         CRC-32C of bytes 8..size
     8     4  size        all of it; a multiple of 8
    12     4  spare       zero
    16     8  offset      where this record starts in the journal
    24     8  durable_to  every byte of the journal below this was on the disk of who wrote this
    32     8  hour        the UTC millisecond that it starts at
    40     8  scheduled   the message log below this lay in its hours when this was decided
    48     .  the dispatch record

Two kinds are not for dispatch logs: `gone` (an hour is settled and gets no more rows: no message is
stored with a time before `value` any more) and `begun` (the master of epoch `first_sequence` cuts
what follows at `scheduled` into hours of `value` milliseconds).
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

from ternmq.core.errors import Corrupt
from ternmq.delay.formats.decision import HEADER as DISPATCH
from ternmq.delay.formats.decision import RECORD_SIZE_MAX, Decision, DecisionKind, decode, encode

MAGIC = b"DJRN"
FRAME = struct.Struct("<4sIII")
HEADER = struct.Struct("<4sII4xQQqQ")

assert HEADER.size == 48


class Noted(NamedTuple):
    """One record of the journal, as far as its headers tell."""

    offset: int
    size: int
    hour: int
    scheduled: int
    kind: DecisionKind
    place: int
    """Where it goes in its hour's dispatch log."""
    record: memoryview
    """The dispatch record."""

    @property
    def end(self) -> int:
        return self.offset + self.size

    def decision(self) -> Decision:
        return decode(self.record)


def pack(
    decision: Decision, *, hour: int, place: int, offset: int, durable_to: int, scheduled: int
) -> bytes:
    """The record at `offset`; its dispatch record goes to `place`. What is on disk there is for
    checkpoints to say, since that differs from member to member."""
    inner = encode(decision, offset=place, durable_to=0)
    size = HEADER.size + len(inner)
    head = HEADER.pack(MAGIC, 0, size, offset, durable_to, hour, scheduled)
    crc = crc32c(inner, crc32c(head[8:]))
    return b"".join((MAGIC, struct.pack("<I", crc), head[8:], inner))


def parse(data: memoryview) -> Noted:
    """A record that `JournalFormat.check` has passed."""
    _, _, size, offset, _, hour, scheduled = HEADER.unpack_from(data)
    record = data[HEADER.size : size]
    fields = DISPATCH.unpack_from(record)
    return Noted(offset, size, hour, scheduled, DecisionKind(fields[3]), fields[6], record)


class JournalFormat:
    """How recovery and a replica recognise these records: a `StreamFormat` of storage."""

    magic = MAGIC
    header_size = HEADER.size

    def size(self, data: memoryview) -> int:
        if len(data) < HEADER.size:
            raise Corrupt(f"{len(data)} bytes left, a journal record has {HEADER.size}")
        magic, _, size, _ = FRAME.unpack_from(data)
        least = HEADER.size + DISPATCH.size
        if magic != MAGIC or not least <= size <= HEADER.size + RECORD_SIZE_MAX or size % 8:
            raise Corrupt("no journal record starts here")
        return int(size)

    def check(self, data: memoryview, offset: int) -> int:
        fields = HEADER.unpack_from(data)
        if fields[1] != crc32c(data[8:]):
            raise Corrupt(f"offset {offset}: the journal record does not match its checksum")
        if fields[3] != offset:
            raise Corrupt(f"offset {offset} holds a journal record written for {fields[3]}")
        return int(fields[4])
