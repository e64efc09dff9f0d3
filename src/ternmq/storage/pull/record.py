"""The pull record: one fact about what a group was given or what was decided for it.

Little-endian, padded with zeros to a multiple of eight.

    at  size  field
     0     4  magic        b"PULL"
     4     4  crc          CRC-32C of bytes 8..size
     8     4  size         all of it; a multiple of 8
    12     1  kind
    13     1  version      1
    14     2  range_count
    16     8  offset       where this record starts in its log; finds misdirected writes
    24     8  durable_to   every byte of the log below this was on disk when this was written
    32     8  group_id
    40     8  lane_id
    48     8  at_ms
    56     8  lease
    64     8  argument     by kind: due time in ms, epoch, sequence ...
    72    16  session
    88     4  text_size
    92     4  spare        zero
    96     .  ranges, 24 bytes each: first u64, end u64, attempt u32, 4 spare
     .     .  text
"""

import struct
from dataclasses import dataclass
from enum import IntEnum

from crc32c import crc32c

from ternmq.core.errors import BadRequest, Corrupt, ProtocolError, TooLarge
from ternmq.core.units import MIB, align8

MAGIC = b"PULL"
VERSION = 1
FRAME = struct.Struct("<4sI")
FIELDS = struct.Struct("<IBBHQQQQqQq16sI4x")
RANGE = struct.Struct("<QQI4x")
HEADER_SIZE = 96
RECORD_SIZE_MAX = 16 * MIB
RANGES_MAX = 65_535
NO_SESSION = bytes(16)

assert FRAME.size + FIELDS.size == HEADER_SIZE

StateRange = tuple[int, int, int]


class PullKind(IntEnum):
    """What a record says. Numbers are for ever; gaps are left for kinds to come."""

    HANDED_OUT = 1
    """Progress: ranges went to `session` under `lease`. Of a detached lease `argument` is for how
    many ms, and text is its lock."""
    ACKED = 2
    RETURNED = 3
    """Progress: ranges came back unworked."""
    STARTED = 4
    EXPIRED = 5
    SKIPPED = 6
    FILTERED = 7
    LOST = 8
    """Progress: ranges came back because their consumer vanished."""
    KILLED = 9
    """Progress: a row that was alone with a consumer that vanished comes again, as RETRY says."""
    STOPPED = 10
    """Progress: ranges failed and wait until an operator lets them go on; text says why."""
    EXTENDED = 11
    """Progress: ranges of a detached lease are kept for `argument` ms from here."""
    RETRY = 16
    """Decision: ranges come again at `argument` (ms); text says why."""
    DEAD = 17
    """Decision: ranges are in the dead-letter topic; text says why."""
    CONFIRM = 18
    """Decision: ranges are acked, and a producer who waits for that is told."""
    REDRIVE = 19
    GROUP_MADE = 32
    """Decision: the group exists and starts at `argument`."""
    GROUP_DELETED = 33
    RESET = 34
    """Decision: the group goes on at `argument`."""
    PAUSE = 35
    RESUME = 36
    SETTINGS = 37
    """Decision: text is the broker's own encoding of the group's settings."""
    CUT = 48
    """Decision: in epoch `argument` the lane ends at ranges[0][0]; what lay above it is void."""
    SNAPSHOT = 64
    """The state of a group on a lane; text is the broker's own encoding of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRecord:
    """One record of the pull log."""

    kind: PullKind
    group_id: int
    lane_id: int = 0
    at_ms: int = 0
    session: bytes = NO_SESSION
    lease: int = 0
    argument: int = 0
    ranges: tuple[StateRange, ...] = ()
    text: bytes = b""


def cut_record(
    *, group_id: int, lane_id: int, epoch: int, end: int, old_end: int, at_ms: int
) -> PullRecord:
    """The lane ends at `end` although the group knows sequences up to `old_end`: those are void,
    so what will be stored there next was never handed out or acked."""
    return PullRecord(
        kind=PullKind.CUT,
        group_id=group_id,
        lane_id=lane_id,
        at_ms=at_ms,
        argument=epoch,
        ranges=((end, old_end, 0),),
    )


def encoded_size(record: PullRecord) -> int:
    return align8(HEADER_SIZE + len(record.ranges) * RANGE.size + len(record.text))


def encode(record: PullRecord, *, offset: int, durable_to: int) -> bytearray:
    """The bytes of a record that will start at `offset`.

    Numbers come from peers too: raises `BadRequest` where one does not fit, `TooLarge` for size.
    """
    size = encoded_size(record)
    if size > RECORD_SIZE_MAX or len(record.ranges) > RANGES_MAX:
        raise TooLarge(
            f"a pull record of {size} bytes and {len(record.ranges)} ranges is over the limit of "
            f"{RECORD_SIZE_MAX} bytes and {RANGES_MAX} ranges"
        )
    if len(record.session) != len(NO_SESSION):
        raise BadRequest(f"a session has {len(NO_SESSION)} bytes, not {len(record.session)}")
    packed = bytearray(size)
    at = HEADER_SIZE
    try:
        FIELDS.pack_into(
            packed,
            FRAME.size,
            size,
            record.kind,
            VERSION,
            len(record.ranges),
            offset,
            durable_to,
            record.group_id,
            record.lane_id,
            record.at_ms,
            record.lease,
            record.argument,
            record.session,
            len(record.text),
        )
        for part in record.ranges:
            RANGE.pack_into(packed, at, *part)
            at += RANGE.size
    except struct.error as error:
        raise BadRequest(f"a number of a {record.kind.name} record is out of range") from error
    packed[at : at + len(record.text)] = record.text
    FRAME.pack_into(packed, 0, MAGIC, crc32c(memoryview(packed)[8:]))
    return packed


def decode(data: memoryview) -> PullRecord:
    """Read a record that `PullFormat.check` has accepted."""
    fields = FIELDS.unpack_from(data, FRAME.size)
    range_count, text_size = fields[3], fields[12]
    ranges_end = HEADER_SIZE + range_count * RANGE.size
    return PullRecord(
        kind=PullKind(fields[1]),
        group_id=fields[6],
        lane_id=fields[7],
        at_ms=fields[8],
        session=fields[11],
        lease=fields[9],
        argument=fields[10],
        ranges=tuple(RANGE.iter_unpack(data[HEADER_SIZE:ranges_end])),
        text=bytes(data[ranges_end : ranges_end + text_size]),
    )


class PullFormat:
    """Pull records as records of a segmented log."""

    magic = MAGIC
    header_size = HEADER_SIZE

    def size(self, data: memoryview) -> int:
        if len(data) < HEADER_SIZE:
            raise Corrupt(f"{len(data)} bytes left, a pull record has {HEADER_SIZE}")
        magic, _ = FRAME.unpack_from(data)
        (size,) = struct.unpack_from("<I", data, FRAME.size)
        if magic != MAGIC or not HEADER_SIZE <= size <= RECORD_SIZE_MAX or size % 8:
            raise Corrupt("no pull record starts here")
        return int(size)

    def check(self, data: memoryview, offset: int) -> int:
        _, crc = FRAME.unpack_from(data)
        if crc != crc32c(data[FRAME.size :]):
            raise Corrupt(f"offset {offset}: the pull record does not match its checksum")
        fields = FIELDS.unpack_from(data, FRAME.size)
        if fields[4] != offset:
            raise Corrupt(f"offset {offset} holds a pull record written for {fields[4]}")
        if fields[2] != VERSION or fields[1] not in _KINDS:
            raise ProtocolError(
                f"offset {offset} holds a pull record of version {fields[2]}, kind {fields[1]}: "
                "the data was written by a newer release, start that one"
            )
        return int(fields[5])


_KINDS = frozenset(PullKind)
