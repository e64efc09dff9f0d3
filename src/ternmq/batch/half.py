"""Half batches and the control batches that decide about them, as bytes.

A *half batch* is a producer's batch with the HALF attribute and a TRANSACTION column of one buffer,
which says what it belongs to; it is stored without a sequence (NO_SEQUENCE in its stamp). A
*control batch* is the broker's own: one row whose body is a `HalfDecision`. A commit names the half
batches, where they lie and which sequences they get; their bodies are not written again. Whoever
reads a committed half batch gets it with that sequence stamped into it (`restamped`).

Both records are msgpack arrays, fields in order: a field may be added at the end with a default.
"""

from typing import Literal

import msgspec

from ternmq.batch.bare_bodies import read_bare_half
from ternmq.batch.check import Incoming, check_incoming
from ternmq.batch.encoder import Origin, encode_control
from ternmq.batch.layout import (
    BATCH_SIZE_MAX,
    COUNT,
    SPARE_BUFFERS,
    STAMP,
    STAMP_START,
    Attribute,
    Buffer,
    Column,
    ColumnPart,
    stamp_crc,
)
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, ProtocolError

NO_SEQUENCE = 2**64 - 1
CONTROL_TOPIC = "%control"
ID_SIZE = 16
NAME_SIZE_MAX = 255
INFO_SIZE_MAX = 1024
DURATION_MAX_MS = 2**42

HALF, CONTROL = int(Attribute.HALF), int(Attribute.CONTROL)


class HalfInfo(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What a half batch belongs to. 0 leaves a time or count to the broker's settings."""

    transaction: bytes = b""
    """16 random bytes; empty where a name stands for it."""
    name: str = ""
    """Of a detached transaction: nobody is asked about it."""
    attempt: int = 0
    first_check_ms: int = 0
    check_interval_ms: int = 0
    checks_max: int = 0
    expires_ms: int = 0
    """Detached: rolled back so long after it was stored last."""
    fenced: bool = True
    """Detached: a higher attempt shuts out lower ones. Else attempts stand side by side, each of
    one producer, and a commit says which of them count."""
    later: str = ""
    """Rows with due times: the delay server that takes them once they are committed."""

    @property
    def key(self) -> bytes:
        return detached_key(self.name, self.attempt) if self.name else b"T" + self.transaction


DETACHED_NAME_AT = 5


def detached_key(name: str, attempt: int) -> bytes:
    return b"D" + attempt.to_bytes(4, "big") + name.encode()


class PlacedHalf(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A half batch and the sequence it got, with what consume log and index want to know."""

    offset: int
    size: int
    topic_id: int
    sequence: int
    count: int
    tag_bloom: int
    priority: int
    searchable: bool
    producer_start: int
    producer_random: int
    first_sequence: int


class HalfDecision(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What became of transactions; `dropped` ones wait for a person."""

    kind: Literal["commit", "rollback", "drop"]
    transactions: list[bytes]
    """Keys, see `HalfInfo.key`."""
    placed: list[PlacedHalf]
    """What a commit makes visible; else empty."""


_encoder = msgspec.msgpack.Encoder()
_infos = msgspec.msgpack.Decoder(HalfInfo)
_decisions = msgspec.msgpack.Decoder(HalfDecision)


def pack_info(info: HalfInfo) -> bytes:
    return _encoder.encode(info)


def read_info(view: BatchView) -> HalfInfo:
    """What a half batch belongs to; raises `ProtocolError` where it does not say so properly."""
    return _read_info(view.buffer(Column.TRANSACTION, ColumnPart.DATA))


def check_half(batch: bytearray | memoryview) -> tuple[Incoming, HalfInfo]:
    """Check a half batch that comes in, as `batch.check` does, and read what it belongs to."""
    bare = read_bare_half(batch) if len(batch) <= BATCH_SIZE_MAX else None
    if bare is not None:
        return Incoming(*bare[0], 0, 0, False, False), _read_info(bare[1])
    incoming = check_incoming(batch, half=True, spare_buffers=SPARE_BUFFERS)
    return incoming, read_info(BatchView(batch))


def _read_info(packed: Buffer | None) -> HalfInfo:
    if packed is None or len(packed) > INFO_SIZE_MAX:
        raise ProtocolError("a half batch must say which transaction it belongs to")
    try:
        info = _infos.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a half batch's transaction cannot be read: {error}") from error
    except RecursionError:
        raise ProtocolError("a half batch's transaction is nested too deeply") from None
    named = 0 < len(info.name.encode()) <= NAME_SIZE_MAX and not info.transaction
    if not named and (info.name or len(info.transaction) != ID_SIZE):
        raise ProtocolError(f"a transaction has {ID_SIZE} bytes of id, or a name")
    times = (info.first_check_ms, info.check_interval_ms, info.expires_ms)
    if not all(0 <= ms <= DURATION_MAX_MS for ms in times) or not 0 <= info.attempt < 2**32:
        raise ProtocolError("a time or attempt of a transaction is out of its limits")
    if not 0 <= info.checks_max <= 1_000_000:
        raise ProtocolError("checks_max of a transaction is out of its limits")
    return info


def pack_decision(decision: HalfDecision, *, origin: Origin, number: int, at_ms: int) -> bytearray:
    """The control batch, not yet stamped."""
    return encode_control(
        _encoder.encode(decision), origin=origin, first_sequence=number, born_at_ms=at_ms
    )


def read_decision(view: BatchView) -> HalfDecision:
    """Raises `Corrupt`."""
    try:
        return _decisions.decode(view.body(0))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"a control batch cannot be read: {error}") from error


def restamped(batch: Buffer, base_sequence: int, stored_at_ms: int) -> bytearray:
    """A committed half batch as if it had been stored with its sequence."""
    copy = bytearray(batch)
    stamp = list(STAMP.unpack_from(copy, STAMP_START))
    stamp[2], stamp[4] = base_sequence, stored_at_ms
    STAMP.pack_into(copy, STAMP_START, *stamp)
    COUNT.pack_into(copy, 12, stamp_crc(copy))
    return copy
