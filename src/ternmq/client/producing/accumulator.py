"""Messages of one topic that wait to be sent, gathered into the batches they will be.

They lie in open batches. Each becomes one batch, has room for `rows_max` rows and `size_max` bytes,
and takes new rows for a few milliseconds only, so that its age is that of all its rows. Row i of an
open batch belongs to waiter i.

Short lists of `send_many` join the open batch too (`BatchShare`): many coroutines that send a few
rows each would otherwise fill the requests under way with tiny batches. Each list gets its own part
of the answer; an open batch that is halved may answer a list in several parts. Memory only: nothing
here sends, encodes or looks at a clock. Belongs to one event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ternmq.batch.encoder import Due, Outgoing
from ternmq.client.model.receipt import BatchReceipt, Published, Receipt
from ternmq.core.errors import TernError

OPEN_AGE_MAX_S = 0.02
ROW_COST = 64  # What a waiting row costs besides its body.
OPTIONS_COST = 192  # And one with keys, tags or properties, besides their own bytes.
PROPERTY_COST = 64  # What a property costs besides its name and value.
SHARED_ROWS_MAX = 256  # Longer lists are batches of their own.
SHARED_SIZE_PART = 4  # As are those that fill more than this part of a batch.

Row = bytes | Outgoing
Waiter = asyncio.Future[Any] | None


class DelayLine(NamedTuple):
    """A topic's messages for later that may share batches; delay servers store them."""

    topic: str
    after_delay: bool
    """Due some time after they are stored; else at times that the sender has set."""


def delay_line_of(topic: str, row: Row) -> DelayLine | None:
    """The messages for later that a row belongs to; None when it is for now."""
    if isinstance(row, bytes) or (row.due_at_ms is None and row.delay_ms is None):
        return None
    return DelayLine(topic, row.delay_ms is not None)


def row_size(row: Row) -> int:
    """What a row counts against the send buffer."""
    if isinstance(row, bytes):
        return len(row) + ROW_COST
    size = len(row.body) + ROW_COST + OPTIONS_COST + len(row.explicit_id or b"")
    for text in (row.key, row.tag, row.order_key):
        if text is not None:
            size += _text_size(text)
    for name, value in (row.properties or {}).items():
        size += PROPERTY_COST + _text_size(name)
        if isinstance(value, str):
            size += _text_size(value)
        elif isinstance(value, bytes):
            size += len(value)
        elif isinstance(value, int):
            size += value.bit_length() // 3  # Its decimal text is about as long.
    return size


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


class BatchShare:
    """One list, the rows of which are not all answered yet."""

    __slots__ = ("_answered", "_left", "_receipt", "count")

    def __init__(self, receipt: BatchReceipt, answered: "asyncio.Future[None]") -> None:
        self.count = self._left = len(receipt)
        self._receipt = receipt
        self._answered = answered

    def done(self) -> bool:
        """True, so that answering row by row passes over the rows of a list."""
        return True

    def answered(
        self, first: int, count: int, published: Published, row: int, error: TernError | None
    ) -> None:
        """Rows of the list lie from `row` on in a batch that was stored, or was not."""
        if error is None:
            self._receipt.stored(first, published, row, count)
        else:
            self._receipt.failed(first, count, published.error_of(error, row, count))
        self._left -= count
        if not self._left and not self._answered.done():
            self._answered.set_result(None)


class Countdown:
    """A list of which every row is answered by itself."""

    __slots__ = ("_answered", "_left", "_receipt")

    def __init__(self, receipt: BatchReceipt, answered: "asyncio.Future[None]") -> None:
        self._left = len(receipt)
        self._receipt = receipt
        self._answered = answered

    def row(self, at: int) -> "asyncio.Future[Receipt]":
        """Waits for the answer about this row."""
        return RowOfList(self, at)  # type: ignore[return-value]  # As much of one as is used.

    def stored(self, at: int, receipt: Receipt) -> None:
        self._receipt.stored(at, *receipt.place, 1)
        self._count(1)

    def failed(self, first: int, count: int, error: TernError) -> None:
        self._receipt.failed(first, count, error)
        self._count(count)

    def _count(self, rows: int) -> None:
        self._left -= rows
        if not self._left and not self._answered.done():
            self._answered.set_result(None)


class RowOfList:
    """What waits for one row, in place of a future."""

    __slots__ = ("_at", "_list")

    def __init__(self, whole: Countdown, at: int) -> None:
        self._list = whole
        self._at = at

    def done(self) -> bool:
        return False

    def set_result(self, receipt: Receipt) -> None:
        self._list.stored(self._at, receipt)

    def set_exception(self, error: TernError) -> None:
        self._list.failed(self._at, 1, error)


class OpenBatch:
    """The rows of one batch to be."""

    __slots__ = (
        "awaited",
        "born_at_ms",
        "due",
        "opened_at",
        "plain",
        "rows",
        "shares",
        "size",
        "waiters",
    )

    def __init__(
        self,
        opened_at: float,
        born_at_ms: int,
        rows: list[Row] | None = None,
        size: int = 0,
        *,
        plain: bool = True,
        due: Due | None = None,
        awaited: bool = False,
    ) -> None:
        self.opened_at = opened_at
        self.born_at_ms = born_at_ms
        self.plain = plain
        """Bare bodies only; the encoder has a faster way for these."""
        self.due = due
        """When all these bare bodies are due; other rows know it themselves."""
        self.awaited = awaited
        """A caller waits for the receipt of at least one of the rows."""
        self.rows: list[Row] = [] if rows is None else rows
        self.waiters: list[Waiter] = []
        self.shares: list[tuple[BatchShare, int]] = []
        """Lists with rows in this batch, each with the row at which the list begins (or began)."""
        self.size = size

    def part(self, first: int, end: int, size: int) -> "OpenBatch":
        """Some of its rows in an open batch of their own, without those who wait for them."""
        return OpenBatch(
            self.opened_at,
            self.born_at_ms,
            self.rows[first:end],
            size,
            plain=self.plain,
            due=self.due,
            awaited=self.awaited,
        )

    def answer(
        self,
        published: Published,
        error: TernError | None,
        unheard: Callable[[int, TernError], None],
    ) -> None:
        """Give everybody who waits for a row its receipt or error. `unheard` takes the errors of
        rows that nobody waits for."""
        if error is None:
            for row, waiter in enumerate(self.waiters):
                if waiter is not None and not waiter.done():
                    waiter.set_result(Receipt(published, row))
        else:
            for row, waiter in enumerate(self.waiters):
                if waiter is None:
                    unheard(row, published.error_of(error, row))
                elif not waiter.done():
                    waiter.set_exception(published.error_of(error, row))
        if self.shares:
            self.answer_lists(published, error)

    def answer_lists(self, published: Published, error: TernError | None) -> None:
        """Give every list in here its part of the answer."""
        for share, at in self.shares:
            row, end = max(0, at), min(len(self.rows), at + share.count)
            share.answered(row - at, end - row, published, row, error)

    def halves(self) -> "tuple[OpenBatch, OpenBatch]":
        """The rows of this batch in two open batches."""
        middle = len(self.rows) // 2
        assert middle > 0
        half = self.size // 2  # Only the sum counts: it is given back to the buffer.
        first = self.part(0, middle, half)
        second = self.part(middle, len(self.rows), self.size - half)
        first.waiters, second.waiters = self.waiters[:middle], self.waiters[middle:]
        first.shares = [(share, at) for share, at in self.shares if at < middle]
        second.shares = [
            (share, at - middle) for share, at in self.shares if at + share.count > middle
        ]
        return first, second


class Accumulator:
    """Open batches that follow each other, oldest first, and how many batches are unanswered."""

    __slots__ = ("delayed", "open_batches", "scheduled", "topic", "under_way")

    def __init__(self, topic: str, *, delayed: bool = False) -> None:
        self.topic = topic
        self.delayed = delayed
        """For delay servers."""
        self.open_batches: deque[OpenBatch] = deque()
        self.under_way = 0
        self.scheduled = False

    @property
    def idle(self) -> bool:
        return not (self.open_batches or self.under_way or self.scheduled)

    def fitting(
        self, size: int, rows_max: int, size_max: int, now: float, count: int = 1
    ) -> OpenBatch | None:
        """The open batch, if one more row (or `count`) of `size` bytes may still join it."""
        if not self.open_batches:
            return None
        open_batch = self.open_batches[-1]
        if (
            len(open_batch.rows) + count > rows_max
            or open_batch.size + size > size_max
            or not 0 <= now - open_batch.opened_at <= OPEN_AGE_MAX_S
        ):
            return None
        return open_batch
