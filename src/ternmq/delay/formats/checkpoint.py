"""The checkpoint of a delay server: how far each file was on disk, and which hours are gone.

    at  size  field
     0     4  magic     b"DCKP"
     4     4  crc       CRC-32C of bytes 8..
     8     .  msgpack of `DelayCheckpoint` (an array, fields in order)

Replaced as a whole, and kept twice: without it the message log would be scheduled again, with what
went out long ago. Losing both costs that, time, and the counts of hours that are gone; never a
message.
"""

import msgspec

from ternmq.core.errors import Corrupt
from ternmq.storage.files.whole_file import check_version, pack_whole, read_whole

MAGIC = b"DCKP"


class KnownHour(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One schedule log, as far as it was on disk."""

    start: int
    length: int
    rows: int
    wal_offset: int
    wal_pieces: int
    next_due: int
    topics: list[tuple[int, int]]
    decided: int = 0
    """How much of its dispatch log was on disk; versions before this was kept say 0."""


class KnownTopic(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The counts of a topic."""

    id: int
    name: str
    accepted: int
    dispatched: int
    """In hours that are gone."""
    cancelled: int


class DelayCheckpoint(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Marks, all of them true at the time of writing."""

    version: int = 1
    clean: bool = False
    hour_ms: int = 0
    wal_durable: int = 0
    """The message log below this was safe, and on disk."""
    scheduled: int = 0
    """The message log below this lies in schedule logs, on disk."""
    stored_at_ms: int = 0
    """No message will be stored with an earlier time."""
    hours: list[KnownHour] = []
    topics: list[KnownTopic] = []
    dropping: list[int] = []
    """Hours whose rows are counted in `topics` and whose files are being removed."""
    taken: list[tuple[int, int, int]] = []
    """How far brokers' topics were taken: the producer that stands for one, and its position."""
    decided_to: int = 0
    """The journal below this lies in dispatch logs, on disk."""
    decision_safe: int = 0
    """The journal below this was safe, and on disk."""
    begun: int = 0
    """The last epoch whose length of an hour is known here."""
    gone_before: int = 0
    """Every hour that is gone ended at or before this."""
    hour_floor: int = 0
    """No hour of this length starts before this."""


def encode(checkpoint: DelayCheckpoint) -> bytes:
    return pack_whole(MAGIC, msgspec.msgpack.encode(checkpoint))


def decode(content: bytes) -> DelayCheckpoint:
    """Raises `Corrupt` when this is not a whole checkpoint."""
    body = read_whole(content, MAGIC, "the delay checkpoint")
    try:
        found = msgspec.msgpack.decode(body, type=DelayCheckpoint)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the delay checkpoint cannot be read: {error}") from error
    check_version(found.version, 1, "the delay checkpoint")
    return found
