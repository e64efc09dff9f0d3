"""The delivery envelope: what a pull or a read answers, one per batch.

    at  size  field
     0     4  size           of the envelope with its batch; a multiple of 8
     4     4  flags          bit 0: the batch is whole (the producer's checksum from end to end)
                             bit 1: handed out alone; its verdict is waited for
                             bit 2: errors follow the attempts
                             bit 3: picked: the batch has the delivered rows only
     8     8  lease          0 for a read
    16     8  lane           which of the group's sequences the rows count in
    24     4  range_count
    28     4  attempt_count  0: every row is at its first attempt
    32     .  ranges         first row u32, end row u32: the rows of the batch that are delivered
     .     .  attempts       u16 per delivered row, then zeros to a multiple of 8
     .     .  errors         only with bit 2: why rows failed the last time
     .     .  the batch, whole or cut

Errors, a multiple of 8 bytes. A reader that does not know the version passes over them:

    at  size  field
     0     4  size           all of it
     4     2  version        1
     6     2  padding        zeros at the end
     8     .  msgpack: a list of (first sequence, end, type, text, traceback, at in ms)

A cut batch knows its own sequences (see `batch.rows.cut`), so the envelope repeats none of them.
The ranges of a picked one (see `batch.rows.pick`) are numbers in the stored batch: row r has the
sequence base_sequence + r and lies behind as many others as the ranges have before r. Only who said
`picks` when joining gets such.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ternmq.batch.layout import Buffer
from ternmq.batch.rows.pick import PickedView
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt

ENVELOPE = struct.Struct("<IIQQII")
RANGE = struct.Struct("<II")
WHOLE = 1
ALONE = 2
ERRORS = 4
PICKED = 8
ERRORS_HEAD = struct.Struct("<IHH")
ERRORS_VERSION = 1
ErrorRow = tuple[int, int, str, str, str, int]
_error_rows = msgspec.msgpack.Decoder(list[ErrorRow])
_PADDING = [bytes(n) for n in range(8)]

assert ENVELOPE.size == 32


class Envelope(NamedTuple):
    """One batch as a consumer gets it."""

    lease: int
    lane: int
    batch: BatchView
    selection: list[tuple[int, int]]
    attempts: list[int]
    whole: bool
    alone: bool = False
    errors: Buffer = b""
    """See `read_errors`; most have none."""

    @property
    def span(self) -> int:
        """One more than the highest number that a row of the batch may have."""
        return self.selection[-1][1] if isinstance(self.batch, PickedView) else self.batch.count


def pack_envelope(
    *,
    lease: int,
    lane: int,
    selection: Sequence[tuple[int, int]],
    attempts: Sequence[int],
    batch_size: int,
    flags: int,
    errors: Sequence[ErrorRow] = (),
) -> bytes:
    """The bytes in front of the batch; the batch itself is sent as it lies in memory.

    `flags`: WHOLE, ALONE, PICKED.
    """
    padding = _PADDING[-2 * len(attempts) & 7]
    packed_errors = pack_errors(errors) if errors else b""
    size = ENVELOPE.size + RANGE.size * len(selection) + 2 * len(attempts) + len(padding)
    size += len(packed_errors)
    flags |= ERRORS if packed_errors else 0
    head = ENVELOPE.pack(size + batch_size, flags, lease, lane, len(selection), len(attempts))
    ranges = b"".join([RANGE.pack(first, end) for first, end in selection])
    if not attempts:
        return head + ranges + packed_errors
    return head + ranges + struct.pack(f"<{len(attempts)}H", *attempts) + padding + packed_errors


def pack_errors(errors: Sequence[ErrorRow]) -> bytes:
    """The section about errors; see `read_errors`."""
    payload = msgspec.msgpack.encode(list(errors))
    padding = _PADDING[-len(payload) & 7]
    size = ERRORS_HEAD.size + len(payload) + len(padding)
    return ERRORS_HEAD.pack(size, ERRORS_VERSION, len(padding)) + payload + padding


def read_errors(section: Buffer) -> list[ErrorRow]:
    """Why rows failed the last time; empty where that cannot be read."""
    if len(section) < ERRORS_HEAD.size:
        return []
    _, version, padding = ERRORS_HEAD.unpack_from(section)
    if version != ERRORS_VERSION:
        return []
    try:
        return _error_rows.decode(section[ERRORS_HEAD.size : len(section) - padding])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return []


def read_envelopes(payload: Buffer, count: int, at: int = 0) -> list[Envelope]:
    """Read `count` envelopes that follow each other from `at` on."""
    view = memoryview(payload)
    found: list[Envelope] = []
    for _ in range(count):
        if len(view) - at < ENVELOPE.size:
            raise Corrupt("an envelope is cut off")
        size, flags, lease, lane, range_count, attempt_count = ENVELOPE.unpack_from(view, at)
        ranges_at = at + ENVELOPE.size
        attempts_at = ranges_at + RANGE.size * range_count
        errors_at = batch_at = attempts_at + ((2 * attempt_count + 7) & ~7)
        if flags & ERRORS and batch_at + ERRORS_HEAD.size <= len(view):
            batch_at += ERRORS_HEAD.unpack_from(view, errors_at)[0]
        if not batch_at < at + size <= len(view):
            raise Corrupt("an envelope's sizes do not add up")
        selection = list(RANGE.iter_unpack(view[ranges_at:attempts_at]))
        attempts = list(struct.unpack_from(f"<{attempt_count}H", view, attempts_at))
        batch = _view(view[batch_at : at + size], selection, picked=bool(flags & PICKED))
        whole, alone = bool(flags & WHOLE), bool(flags & ALONE)
        errors = view[errors_at:batch_at]
        found.append(Envelope(lease, lane, batch, selection, attempts, whole, alone, errors))
        at += size
    return found


def _view(data: Buffer, selection: list[tuple[int, int]], *, picked: bool) -> BatchView:
    if picked:
        return PickedView(data, selection)
    batch = BatchView(data)
    for first, end in selection:
        if not first < end <= batch.count:
            raise Corrupt("an envelope selects rows that its batch does not have")
    return batch
