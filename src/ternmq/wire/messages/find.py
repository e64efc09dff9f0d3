"""Finding messages by id or key, and storing what must not be stored twice.

PUBLISH_ONCE's payload is one batch in which every row has an explicit id; its answer says which of
them the topic had already. If there is any, nothing of the batch was stored.
"""

from ternmq.wire.messages.commands import Record

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
