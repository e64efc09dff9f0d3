"""Storing messages, finding them again, and asking whether a group has acked them."""

import struct
from typing import Literal

from ternmq.wire.record import Number, Record

PUBLISHED = struct.Struct("<QQqII")  # topic id, base sequence, stored at ms, count, flags


PUBLISHED_DUPLICATE = 1  # A repeat was recognised; this is the first one's receipt.
PUBLISHED_SAFETY = 6  # How safe it is, one of the next three; 0: a server before 0.2 does not say.
PUBLISHED_WRITTEN = 2  # The server's operating system has it (flush = "async").
PUBLISHED_SYNCED = 4  # It is on the server's disk.
PUBLISHED_REPLICATED = 6  # Every replica in step has it too.
PUBLISHED_TRACED = 8  # Delivery records of it are kept: the trace and the archive show it.


SettledState = Literal["dead", "expired", "filtered", "skipped", "unknown"]


class Confirm(Record, frozen=True):
    topic: str
    group: str
    first: Number = 0
    end: Number = 0
    wait_ms: Number = 0
    """How long the broker may wait for rows that are open."""


class Confirmed(Record, frozen=True):
    open: list[tuple[Number, Number]]
    """Not settled yet."""
    refused: list[tuple[Number, Number, SettledState]]
    """Settled, but not by an ack; 'unknown' when that is too long ago to tell."""


FOUND_LIMIT = 100


class Find(Record, frozen=True):
    """Exactly one of `id` and `key`; times are stored times in ms, the end not included."""

    topic: str = ""
    """Empty means any."""
    id: bytes | None = None
    key: str | None = None
    start_ms: Number = 0
    end_ms: Number = 0
    """0 means no end."""
    limit: Number = FOUND_LIMIT


class FoundPlace(Record, frozen=True):
    topic: str
    sequence: Number
    offset: Number
    """In the message log of the broker group that answers."""
    stored_at_ms: Number


class FoundPlaces(Record, frozen=True):
    places: list[FoundPlace]
    """Those stored last first."""


class KnownRow(Record, frozen=True):
    """A row of the batch whose id the topic has already, and where."""

    row: Number
    sequence: Number
    stored_at_ms: Number


class PublishedOnce(Record, frozen=True):
    """Either `known` is empty and the batch is stored from `base_sequence` on, or nothing is."""

    known: list[KnownRow]
    base_sequence: Number = -1
    stored_at_ms: Number = 0
