"""What a pull gets: rows of stored batches, under a lease. Plain values and ranges of rows."""

from collections.abc import Sequence
from typing import NamedTuple

from ternmq.batch.envelope import ErrorRow
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import FailureNote
from ternmq.storage.consume.entry import ConsumeEntry


class Slice(NamedTuple):
    """Rows of one stored batch that are handed out together."""

    entry: ConsumeEntry
    selection: list[tuple[int, int]]
    attempts: list[int]

    def precedes(self, entry: ConsumeEntry, sequence: int) -> bool:
        """May a row be added at the end? Rows of a slice are of one batch and ascend."""
        base = self.entry.base_sequence
        return base == entry.base_sequence and self.selection[-1][1] <= sequence - base


class Handout(NamedTuple):
    """What one pull gets of one group."""

    group: ConsumerGroup
    lease: int
    slices: list[Slice]
    alone: bool = False
    """A suspect (see `poison_isolation`): its consumer holds nothing else."""
    failure_notes: Sequence[tuple[int, int, FailureNote]] = ()
    """Where it says why rows failed before."""
    errors: Sequence[ErrorRow] = ()
    """The same, read."""

    def failures(self) -> set[FailureNote]:
        return {note for _, _, note in self.failure_notes}


NOBODY: tuple[None, int, int] = (None, 0, 0)


def sequences_of(slices: list[Slice]) -> list[tuple[int, int]]:
    """The rows of slices as ranges of sequences."""
    return [
        (piece.entry.base_sequence + first, piece.entry.base_sequence + end)
        for piece in slices
        for first, end in piece.selection
    ]


def clipped(
    ranges: list[tuple[int, int]], low: int, high: int, rows_max: int
) -> list[tuple[int, int]]:
    """The parts of ranges between `low` and `high`, at most `rows_max` rows."""
    kept: list[tuple[int, int]] = []
    for first, end in ranges:
        first, end = max(first, low), min(end, high, max(first, low) + rows_max)
        if first < end:
            kept.append((first, end))
            rows_max -= end - first
            if rows_max <= 0:
                break
    return kept


def note_waits(group: ConsumerGroup, slices: list[Slice], rows: int, now: tuple[int, int]) -> None:
    """Count how long rows that go out for the first time were stored. `rows` is how many slices
    have together; `now` the moment of lanes and the time of day. Batches lie in the order in which
    they were stored, so where the first and the last are about as old it is one step."""
    moment, now_ms = now
    first, last = slices[0], slices[-1]
    if not first.attempts and not last.attempts:  # None of them came back.
        oldest = max(0, now_ms - first.entry.stored_at_ms)
        newest = max(0, now_ms - last.entry.stored_at_ms)
        known = group.wait_times
        if first is last or (
            known is not None and known.bucket(oldest / 1000) == known.bucket(newest / 1000)
        ):
            group.waited((oldest + newest) / 2000, rows, moment)
            return
    for piece in slices:
        if not piece.attempts or piece.attempts[0] == 1:
            age_ms = max(0, now_ms - piece.entry.stored_at_ms)
            group.waited(age_ms / 1000, sum(b - a for a, b in piece.selection), moment)
