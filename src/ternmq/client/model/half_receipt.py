"""Receipts of half messages: one object per batch; one per message is made when asked for.

A batch of a thousand messages is one entry here; where its rows are visible is told once, by the
commit, and every receipt that was handed out before knows it then.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from ternmq.core.ids import ProducerId, explicit_id_text, id_to_text
from ternmq.wire.messages.transactions import HalfPlace


@dataclass(slots=True, kw_only=True, eq=False)
class HalfBatch:
    """One stored half batch."""

    topic: str
    broker_group: str
    producer: ProducerId
    first: int
    """The producer's number of its first message, by which a commit says where it is."""
    count: int
    explicit_ids: list[bytes | None] | None = None
    sequence: int | None = None


class HalfReceipt:
    """One message is safe, and invisible until its transaction commits."""

    __slots__ = ("_batch", "_row")

    def __init__(self, batch: HalfBatch, row: int) -> None:
        self._batch = batch
        self._row = row

    @property
    def id(self) -> str:
        explicit = self._batch.explicit_ids
        own = None if explicit is None else explicit[self._row]
        if own is not None:
            return explicit_id_text(own)
        return id_to_text(self._batch.producer.message_id(self.number))

    @property
    def place(self) -> tuple[HalfBatch, int]:
        return self._batch, self._row

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def broker_group(self) -> str:
        return self._batch.broker_group

    @property
    def number(self) -> int:
        """The producer's own."""
        return self._batch.first + self._row

    @property
    def sequence(self) -> int | None:
        """Known once the transaction is committed."""
        first = self._batch.sequence
        return None if first is None else first + self._row

    def __repr__(self) -> str:
        return f"HalfReceipt(id={self.id!r}, topic={self.topic!r}, sequence={self.sequence})"


class HalfReceipts(Sequence[HalfReceipt]):
    """Receipts in the order of their messages; each is made when asked for."""

    __slots__ = ("_ends", "_runs")

    def __init__(self) -> None:
        self._runs: list[tuple[HalfBatch, int]] = []
        """Rows that follow each other: of this batch, from this row on."""
        self._ends: list[int] = []

    def add(self, batch: HalfBatch) -> None:
        self._add(batch, 0, batch.count)

    def _add(self, batch: HalfBatch, first: int, count: int) -> None:
        self._runs.append((batch, first))
        self._ends.append(len(self) + count)

    def extend(self, other: "HalfReceipts") -> None:
        before = 0
        for (batch, first), end in zip(other._runs, other._ends, strict=True):
            self._add(batch, first, end - before)
            before = end

    def weave(self, parts: "list[tuple[list[int], HalfReceipts]]") -> None:
        """Add what was stored in several parts; each says which of all the rows are its own."""
        found = {
            at: receipt for rows, part in parts for at, receipt in zip(rows, part, strict=True)
        }
        for at in sorted(found):
            batch, row = found[at].place
            if self._runs and self._follows(batch, row):
                self._ends[-1] += 1
            else:
                self._add(batch, row, 1)

    def groups(self) -> set[str]:
        """Where the messages lie."""
        return {batch.broker_group for batch, _ in self._runs}

    def _follows(self, batch: HalfBatch, row: int) -> bool:
        last, first = self._runs[-1]
        before = self._ends[-2] if len(self._ends) > 1 else 0
        return last is batch and first + self._ends[-1] - before == row

    def fill_in(self, placed: list[HalfPlace]) -> None:
        """A commit says where the batches are."""
        places = {(place.topic, place.first_sequence): place.sequence for place in placed}
        for batch, _ in self._runs:
            batch.sequence = places.get((batch.topic, batch.first), batch.sequence)

    def unplaced(self) -> dict[str, int]:
        """After a commit: messages that are nowhere, by topic."""
        found: dict[str, int] = {}
        before = 0
        for (batch, _), end in zip(self._runs, self._ends, strict=True):
            if batch.sequence is None:
                found[batch.topic] = found.get(batch.topic, 0) + end - before
            before = end
        return found

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> HalfReceipt: ...

    @overload
    def __getitem__(self, at: slice) -> list[HalfReceipt]: ...

    def __getitem__(self, at: int | slice) -> HalfReceipt | list[HalfReceipt]:
        if isinstance(at, slice):
            return [self[row] for row in range(*at.indices(len(self)))]
        row = at + len(self) if at < 0 else at
        if not 0 <= row < len(self):
            raise IndexError(f"receipt {at} of {len(self)}")
        number = bisect_right(self._ends, row)
        before = self._ends[number - 1] if number else 0
        batch, first = self._runs[number]
        return HalfReceipt(batch, first + row - before)

    def __repr__(self) -> str:
        return f"<{len(self)} receipts of half messages>"
