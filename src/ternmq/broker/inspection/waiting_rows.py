"""Rows of a lane that wait for their next attempt: by due time, and counted by what they failed of.

A million rows may wait, in no order but that of their sequences. So they are gone through in steps,
each short enough for a turn of the loop, and only the page that was asked for is kept. The lane may
change between two steps; a step goes on at the next sequence. What was looked at is bounded, and
said. Pure memory: who runs the steps gives the loop to others in between.
"""

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import Failed, FailureNote, failure_line, read_failure
from ternmq.broker.groups.lease import Wait

STEP = 500
"""Ranges that are looked at in one turn of the loop."""
SCANNED_MAX = 200_000
"""Ranges that are looked at for one answer."""
ERROR_LETTERS_MAX = 400


def error_line(failed: Failed | None) -> str:
    """What went wrong, as it is listed and counted."""
    return failure_line(failed)[:ERROR_LETTERS_MAX]


class WaitingPiece(NamedTuple):
    """A range that waits; they sort by their due time."""

    due: int
    first: int
    lane: int
    """Which of the lanes that were asked for."""
    end: int
    wait: Wait
    note: FailureNote | None

    @property
    def cursor(self) -> tuple[int, int, int]:
        return self.due, self.first, self.lane


class WaitingScan:
    """What is found while going through the lanes of a group."""

    def __init__(self, after: tuple[int, int, int], limit: int, *, errors: bool) -> None:
        self._after = after
        self._limit = limit
        self._errors = errors
        self._left = SCANNED_MAX
        self.page: list[WaitingPiece] = []
        self.more = False
        """There is another page."""
        self.rows = 0
        """Rows that were looked at."""
        self.counts: dict[str, int] = {}
        """By error, where that is in memory."""
        self.unread: dict[FailureNote, int] = {}
        """Rows whose error lies on disk."""

    def steps(self, lanes: list[ConsumerGroup]) -> Iterator[None]:
        """Look at everything that waits, a bit at a time."""
        for number, group in enumerate(lanes):
            at = 0
            while self._left > 0 and (pieces := group.lane.waiting.run(at, STEP)):
                at = pieces[-1][1]
                self._left -= len(pieces)
                self._look(group, number, pieces)
                yield

    def _look(self, group: ConsumerGroup, number: int, pieces: list[tuple[int, int, Wait]]) -> None:
        notes = group.lane.failure_notes
        found = [
            WaitingPiece(wait.due, first, number, end, wait, notes.get(first))
            for first, end, wait in pieces
            if (wait.due, first, number) > self._after
        ]
        self.more = self.more or len(found) + len(self.page) > self._limit
        self.page = nsmallest(self._limit, [*self.page, *found], key=lambda piece: piece.cursor)
        self.rows += sum(end - first for first, end, _ in pieces)
        if self._errors:
            for first, end, _ in pieces:
                self._count(group, first, end)

    def _count(self, group: ConsumerGroup, first: int, end: int) -> None:
        known = 0
        for a, b, note in group.lane.failure_notes.overlap(first, end):
            known += b - a
            if note.text is None and note.offset >= 0:
                self.unread[note] = self.unread.get(note, 0) + b - a
            else:
                failed = read_failure(note.text, note.at_ms) if note.text else None
                self.add(error_line(failed), b - a)
        if known < end - first:
            self.add("", end - first - known)

    def add(self, error: str, rows: int) -> None:
        self.counts[error] = self.counts.get(error, 0) + rows
