"""One step of a lane, as the pull log keeps it, and what a verdict did to the rows it named.

A `LaneEvent` is everything that must survive a restart: applying the same changes in the same order
gives the same lane (`replay.apply`). Plain values; nothing here acts.
"""

from typing import NamedTuple

from ternmq.broker.groups.failure_notes import FailureNote
from ternmq.storage.pull.record import PullKind

Piece = tuple[int, int, int]  # first, end, attempt
BY_POLICY = 1 << 62  # Marks a RETRY or KILLED record whose delay came from the group's policy.
NO_SESSION = bytes(16)
RANGES_TOGETHER = 50_000  # A record of the pull log names at most 65,535.


class LaneEvent(NamedTuple):
    """One step of one lane, ready for the pull log."""

    kind: PullKind
    ranges: tuple[Piece, ...]
    lease: int = 0
    session: bytes = NO_SESSION
    argument: int = 0
    text: bytes = b""
    note: FailureNote | None = None
    """Told where the text lies, once it does."""


class Settled(NamedTuple):
    """What became of an ack: rows that changed, rows that were not this lease's any more."""

    changes: list[LaneEvent]
    settled: int
    late: int
    moving: tuple[Piece, ...] = ()
    overdue: tuple[Piece, ...] = ()
    """These move, too: their last detached lease ran out."""


def together(changes: list[LaneEvent]) -> list[LaneEvent]:
    """Steps of one moment that say the same of several rows become one: one record, not many."""
    if len(changes) < 2 and all(len(change.ranges) <= RANGES_TOGETHER for change in changes):
        return changes
    found: dict[tuple[PullKind, int, int], list[Piece]] = {}
    others: list[LaneEvent] = []
    for change in changes:
        if change.note is None and not change.text and change.session == NO_SESSION:
            key = (change.kind, change.lease, change.argument)
            found.setdefault(key, []).extend(change.ranges)
        else:
            others.append(change)
    for (kind, lease, argument), pieces in found.items():
        for at in range(0, len(pieces), RANGES_TOGETHER):
            ranges = tuple(pieces[at : at + RANGES_TOGETHER])
            others.append(LaneEvent(kind, ranges, lease, argument=argument))
    return others
