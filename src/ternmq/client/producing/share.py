"""A short list of `send_many` that shares batches with other senders.

Many coroutines that send a few rows each would fill the requests under way with tiny batches; so
short lists join the open chunk of their topic, as single messages do, and each gets its own part of
the answer. A chunk that is halved may answer a list in several parts. Belongs to one event loop.
"""

import asyncio

from ternmq.client.model.receipt import BatchReceipt, Published, Receipt
from ternmq.core.errors import TernError

SHARED_ROWS_MAX = 256  # Longer lists are batches of their own.
SHARED_SIZE_PART = 4  # As are those that fill more than this part of a batch.


class BatchShare:
    """One list, the rows of which are not all answered yet."""

    __slots__ = ("_left", "_receipt", "_told", "count")

    def __init__(self, receipt: BatchReceipt, told: "asyncio.Future[None]") -> None:
        self.count = self._left = len(receipt)
        self._receipt = receipt
        self._told = told

    def done(self) -> bool:
        """To the chunk's row by row answers: nothing is waited for here."""
        return True

    def answered(
        self, first: int, count: int, published: Published, row: int, error: TernError | None
    ) -> None:
        """Rows of the list lie from `row` on in a batch that was stored, or was not."""
        if error is None:
            self._receipt.stored(first, published, row, count)
        else:
            self._receipt.failed(first, count, error)
        self._left -= count
        if not self._left and not self._told.done():
            self._told.set_result(None)


class Countdown:
    """A list of which every row is answered by itself."""

    __slots__ = ("_left", "_receipt", "_told")

    def __init__(self, receipt: BatchReceipt, told: "asyncio.Future[None]") -> None:
        self._left = len(receipt)
        self._receipt = receipt
        self._told = told

    def row(self, at: int) -> "asyncio.Future[Receipt]":
        """To be told about this row."""
        return RowOfList(self, at)  # type: ignore[return-value]  # As much of one as is used.

    def stored(self, at: int, receipt: Receipt) -> None:
        self._receipt.stored(at, *receipt.place, 1)
        self._count(1)

    def failed(self, first: int, count: int, error: TernError) -> None:
        self._receipt.failed(first, count, error)
        self._count(count)

    def _count(self, rows: int) -> None:
        self._left -= rows
        if not self._left and not self._told.done():
            self._told.set_result(None)


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
