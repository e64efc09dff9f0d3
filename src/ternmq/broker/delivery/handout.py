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
