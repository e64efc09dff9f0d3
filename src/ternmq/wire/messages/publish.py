"""Storing messages, finding them again, and asking whether a group has acked them."""

import struct
from typing import Literal

from ternmq.wire.record import Record

PUBLISHED = struct.Struct("<QQqII")  # topic id, base sequence, stored at ms, count, flags


PUBLISHED_DUPLICATE = 1  # A repeat was recognised; this is the first one's receipt.


State = Literal["dead", "expired", "filtered", "skipped", "unknown"]


class Confirm(Record, frozen=True):
    topic: str
    group: str
    first: int = 0
    end: int = 0
    wait_ms: int = 0
    """How long the broker may wait for rows that are open."""


class Confirmed(Record, frozen=True):
    open: list[tuple[int, int]]
    """Not settled yet."""
    refused: list[tuple[int, int, State]]
    """Settled, but not by an ack; 'unknown' when that is too long ago to tell."""


FOUND_LIMIT = 100


class Find(Record, frozen=True):
    """Exactly one of `id` and `key`; times are stored times in ms, the end not included."""

    topic: str = ""
    """Empty means any."""
    id: bytes | None = None
    key: str | None = None
    start_ms: int = 0
    end_ms: int = 0
    """0 means no end."""
    limit: int = FOUND_LIMIT


class FoundPlace(Record, frozen=True):
    topic: str
    sequence: int
    offset: int
    """In the message log of the broker group that answers."""
    stored_at_ms: int


class FoundPlaces(Record, frozen=True):
    places: list[FoundPlace]
    """Those stored last first."""


class KnownRow(Record, frozen=True):
    """A row of the batch whose id the topic has already, and where."""

    row: int
    sequence: int
    stored_at_ms: int


class PublishedOnce(Record, frozen=True):
    """Either `known` is empty and the batch is stored from `base_sequence` on, or nothing is."""

    known: list[KnownRow]
    base_sequence: int = -1
    stored_at_ms: int = 0
