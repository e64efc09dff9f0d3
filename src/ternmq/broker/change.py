"""One step of a lane, as the pull log keeps it, and what a verdict did to the rows it named.

A `Change` is everything that must survive a restart: applying the same changes in the same order
gives the same lane (`replay.apply`). Plain values; nothing here acts.
"""

from typing import NamedTuple

from ternmq.broker.notes import Note
from ternmq.storage.pull_log import Kind

Piece = tuple[int, int, int]  # first, end, attempt
BY_POLICY = 1 << 62  # Marks a RETRY or KILLED record whose delay came from the group's policy.
NO_SESSION = bytes(16)


class Change(NamedTuple):
    """One step of one lane, ready for the pull log."""

    kind: Kind
    ranges: tuple[Piece, ...]
    lease: int = 0
    session: bytes = NO_SESSION
    argument: int = 0
    text: bytes = b""
    note: Note | None = None
    """Told where the text lies, once it does."""


class Settled(NamedTuple):
    """What became of an ack: rows that changed, rows that were not this lease's any more."""

    changes: list[Change]
    settled: int
    late: int
    dying: tuple[Piece, ...] = ()
