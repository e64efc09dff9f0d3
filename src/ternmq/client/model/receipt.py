"""What a producer gets back: where its messages are.

One `Published` is shared by all rows that were stored together; receipts are two references each
and work out their fields when asked, so a million receipts cost next to nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, overload

from ternmq.batch.encoder import Due
from ternmq.client.model.times import time_from_ms
from ternmq.core.errors import BadRequest, SendUnknown, TernError
from ternmq.core.ids import ProducerId, explicit_id_text, id_to_text
from ternmq.wire.messages.publish import (
    PUBLISHED_DUPLICATE,
    PUBLISHED_REPLICATED,
    PUBLISHED_SAFETY,
    PUBLISHED_SYNCED,
    PUBLISHED_TRACED,
    PUBLISHED_WRITTEN,
)


class SendStatus(StrEnum):
    """How safe a message was when its server answered. It is stored in any case."""

    STORED = "stored"
    """As safe as the server's settings say; one before 0.2 does not say more."""
    WRITTEN = "written"
    """Its operating system has it (`flush = "async"`): a crash of the machine may lose it."""
    SYNCED = "synced"
    """It is on its disk."""
    REPLICATED = "replicated"
    """Every replica in step has it too, as `replica_ack` says."""


_STATUS = {
    0: SendStatus.STORED,
    PUBLISHED_WRITTEN: SendStatus.WRITTEN,
    PUBLISHED_SYNCED: SendStatus.SYNCED,
    PUBLISHED_REPLICATED: SendStatus.REPLICATED,
}


class Dues(NamedTuple):
    """When the rows of a batch are due, each its own time."""

    ms: list[int]
    relative: bool


class Published:
    """The broker's answer about one batch."""

    __slots__ = (
        "base_sequence",
        "broker_group",
        "count",
        "due",
        "explicit_ids",
        "first_sequence",
        "flags",
        "producer",
        "stored_at_ms",
        "topic",
    )

    def __init__(self, topic: str, producer: ProducerId, first_sequence: int, count: int) -> None:
        self.topic = topic
        self.producer = producer
        self.first_sequence = first_sequence
        self.count = count
        self.broker_group = ""
        self.base_sequence = -1
        self.stored_at_ms = 0
        self.flags = 0
        """Of PUBLISHED, as the server set them."""
        self.due: Due | Dues | None = None
        self.explicit_ids: list[bytes | None] | None = None
        """Where some row brought its own."""

    def answered(
        self, broker_group: str, base_sequence: int, stored_at_ms: int, flags: int
    ) -> None:
        """The broker group has stored it there."""
        self.broker_group = broker_group
        self.base_sequence = base_sequence
        self.stored_at_ms = stored_at_ms
        self.flags = flags

    def error_of(self, error: TernError, row: int, count: int = 1) -> TernError:
        """What the caller that sent these rows is told: with their ids, if they may be stored."""
        if isinstance(error, SendUnknown):
            return error.about([Receipt(self, at).id for at in range(row, row + count)])
        return error.copy()


class Receipt:
    """One message is safe, and this is where."""

    __slots__ = ("_published", "_row")

    def __init__(self, published: Published, row: int) -> None:
        self._published = published
        self._row = row

    @property
    def id(self) -> str:
        """The message id, 26 characters (an explicit one of another length: hex)."""
        explicit = self._explicit_id()
        return id_to_text(self._number()) if explicit is None else explicit_id_text(explicit)

    @property
    def id_bytes(self) -> bytes:
        """The message id as servers know it."""
        explicit = self._explicit_id()
        return self._number().to_bytes(16, "big") if explicit is None else explicit

    @property
    def place(self) -> tuple[Published, int]:
        """The batch of this message, and the row in it."""
        return self._published, self._row

    def _number(self) -> int:
        published = self._published
        return published.producer.message_id(published.first_sequence + self._row)

    def _explicit_id(self) -> bytes | None:
        explicit = self._published.explicit_ids
        return None if explicit is None else explicit[self._row]

    @property
    def topic(self) -> str:
        return self._published.topic

    @property
    def broker_group(self) -> str:
        return self._published.broker_group

    @property
    def sequence(self) -> int:
        """The message's number in its topic, in this broker group (or in this delay server)."""
        return self._published.base_sequence + self._row

    @property
    def stored_at(self) -> datetime:
        return time_from_ms(self._published.stored_at_ms)

    @property
    def duplicate(self) -> bool:
        """A repeat was recognised; this is the receipt of the first one."""
        return bool(self._published.flags & PUBLISHED_DUPLICATE)

    @property
    def status(self) -> SendStatus:
        """How safe the message was when the server answered."""
        return _STATUS[self._published.flags & PUBLISHED_SAFETY]

    @property
    def due_at(self) -> datetime | None:
        """When the message is handed out; None if it is for now.

        A delay counts from the moment in which the delay server got the message; the receipt of a
        repeat knows that moment only to some milliseconds.
        """
        due_ms = self.due_at_ms
        return None if due_ms is None else time_from_ms(due_ms)

    @property
    def due_at_ms(self) -> int | None:
        due = self._published.due
        if due is None:
            return None
        ms = due.ms if isinstance(due, Due) else due.ms[self._row]
        return ms + self._published.stored_at_ms if due.relative else ms

    @property
    def traced(self) -> bool:
        """The broker keeps delivery records of it, which the trace and the archive show. Of a
        message for later: False; whoever gets it when it is due decides."""
        return bool(self._published.flags & PUBLISHED_TRACED)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Receipt)
            and self.id == other.id
            and self.topic == other.topic
            and self.sequence == other.sequence
        )

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return (
            f"Receipt(id={self.id!r}, topic={self.topic!r}, broker_group={self.broker_group!r}, "
            f"sequence={self.sequence}, status={self.status.value!r}, duplicate={self.duplicate})"
        )


class BatchReceipt:
    """The receipts of one `send_many`: `len()`, `[i]`, iteration, and what failed.

    Row i of the receipt is message i of the call. Asking for a row that failed raises its error.
    """

    __slots__ = ("_count", "_stored", "failures", "waited")

    def __init__(self, count: int, *, waited: bool = True) -> None:
        self._count = count
        self.waited = waited
        """The call waited until they were stored; else nobody knows where they are."""
        self._stored: list[tuple[int, Published, int, int]] = []
        self.failures: list[tuple[range, TernError]] = []
        """Rows that are not (or not certainly) stored, with the reason; empty when all is well."""

    def stored(
        self, first_row: int, published: Published, row: int = 0, count: int | None = None
    ) -> None:
        """Rows from `first_row` on are rows from `row` on of a stored batch; all of it, or some."""
        self._stored.append(
            (first_row, published, row, published.count if count is None else count)
        )

    def parts(self) -> list[tuple[Published, int, int]]:
        """What is stored: batch, first row in it, how many."""
        return [(published, row, count) for _, published, row, count in self._stored]

    def failed(self, first_row: int, count: int, error: TernError) -> None:
        self.failures.append((range(first_row, first_row + count), error))

    def finish(self) -> None:
        """Parts may be answered in any order; rows are looked up in theirs."""
        if len(self._stored) > 1:
            self._stored.sort(key=lambda part: part[0])
        if len(self.failures) > 1:
            self.failures.sort(key=lambda part: part[0].start)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, row: int) -> Receipt: ...

    @overload
    def __getitem__(self, row: slice) -> list[Receipt]: ...

    def __getitem__(self, row: int | slice) -> Receipt | list[Receipt]:
        if isinstance(row, slice):
            return [self[at] for at in range(*row.indices(self._count))]
        if row < 0:
            row += self._count
        if not 0 <= row < self._count:
            raise IndexError(f"row {row} of {self._count}")
        if not self.waited:
            raise BadRequest(
                "these messages were sent without waiting (wait_for_store=False), so there is no "
                "receipt of one: what fails is told to on_error"
            )
        at = bisect_right(self._stored, row, key=lambda part: part[0]) - 1
        if at >= 0:
            first, published, base, count = self._stored[at]
            if row < first + count:
                return Receipt(published, base + row - first)
        for rows, error in self.failures:
            if row in rows:
                raise error
        raise AssertionError("a row is either stored or failed")

    def __iter__(self) -> Iterator[Receipt]:
        return (self[row] for row in range(self._count))

    def __repr__(self) -> str:
        failed = sum(len(rows) for rows, _ in self.failures)
        waited = "" if self.waited else ", waited=False"
        return f"BatchReceipt(messages={self._count}, failed={failed}{waited})"
