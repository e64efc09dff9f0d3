"""Receipts of half messages: one object per batch, one per message only when somebody looks.

A batch of a thousand messages is one entry here; where its rows are visible is told once, by the
commit, and every receipt that was handed out before knows it then.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from ternmq.core.ids import ProducerId, explicit_id_text, id_to_text
from ternmq.wire.halves import HalfPlace


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
    """One message is safe, and nobody sees it before its transaction commits."""

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
    """Receipts in the order of their messages; a list that is made when it is looked at."""

    __slots__ = ("_batches", "_ends")

    def __init__(self) -> None:
        self._batches: list[HalfBatch] = []
        self._ends: list[int] = []

    def add(self, batch: HalfBatch) -> None:
        self._batches.append(batch)
        self._ends.append(len(self) + batch.count)

    def extend(self, other: "HalfReceipts") -> None:
        for batch in other._batches:
            self.add(batch)

    def fill_in(self, placed: list[HalfPlace]) -> None:
        """A commit says where the batches are."""
        places = {(place.topic, place.first_sequence): place.sequence for place in placed}
        for batch in self._batches:
            batch.sequence = places.get((batch.topic, batch.first))

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
        return HalfReceipt(self._batches[number], row - before)

    def __repr__(self) -> str:
        return f"<{len(self)} receipts of half messages>"
