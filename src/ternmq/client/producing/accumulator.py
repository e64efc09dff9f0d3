"""Messages of one topic that wait to be cut into a batch.

They lie in chunks: each becomes one batch, has room for `rows_max` rows and `size_max` bytes, and
takes new rows for a few milliseconds only, so that its age is that of all its rows. Pure memory;
row i of a chunk belongs to waiter i.
"""

import asyncio
from collections import deque
from typing import Any

from ternmq.batch.encoder import Due, Outgoing
from ternmq.client.model.receipt import Published
from ternmq.client.producing.share import BatchShare
from ternmq.core.errors import TernError

CHUNK_AGE_MAX_S = 0.02
ROW_COST = 64  # What a waiting row costs besides its body.
OPTIONS_COST = 192  # And one with keys, tags or properties, besides their own bytes.
PROPERTY_COST = 64  # What a property costs besides its name and value.

Row = bytes | Outgoing
Line = str | tuple[str, bool]
"""What may share batches: a topic, or a topic's messages for later (True: after a delay)."""
Waiter = asyncio.Future[Any] | None


def line_of(topic: str, row: Row) -> Line:
    """Which line of this topic a row belongs to."""
    if isinstance(row, bytes) or (row.due_at_ms is None and row.delay_ms is None):
        return topic
    return topic, row.delay_ms is not None


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

    def __init__(self, opened_at: float, born_at_ms: int) -> None:
        self.opened_at = opened_at
        self.born_at_ms = born_at_ms
        self.plain = True
        """Bare bodies only; the encoder has a faster way for these."""
        self.due: Due | None = None
        """When all these bare bodies are due; other rows know it themselves."""
        self.awaited = False
        """Somebody waits for the receipt of at least one of the rows."""
        self.rows: list[Row] = []
        self.waiters: list[Waiter] = []
        self.shares: list[tuple[BatchShare, int]] = []
        """Lists that lie in this chunk, each with the row at which its first row lies (or lay)."""
        self.size = 0

    def answer_lists(self, published: Published, error: TernError | None) -> None:
        """Give every list in here its part of the answer."""
        for share, at in self.shares:
            row, end = max(0, at), min(len(self.rows), at + share.count)
            share.answered(row - at, end - row, published, row, error)

    def halves(self) -> "tuple[OpenBatch, OpenBatch]":
        """The same rows in two chunks."""
        middle = len(self.rows) // 2
        assert middle > 0
        first, second = (
            OpenBatch(self.opened_at, self.born_at_ms),
            OpenBatch(self.opened_at, self.born_at_ms),
        )
        first.rows, second.rows = self.rows[:middle], self.rows[middle:]
        first.waiters, second.waiters = self.waiters[:middle], self.waiters[middle:]
        first.plain = second.plain = self.plain
        first.due = second.due = self.due
        first.awaited = second.awaited = self.awaited
        first.shares = [(share, at) for share, at in self.shares if at < middle]
        second.shares = [
            (share, at - middle) for share, at in self.shares if at + share.count > middle
        ]
        first.size = self.size // 2  # Only the sum counts: it is given back to the buffer.
        second.size = self.size - first.size
        return first, second


class Accumulator:
    """One line's chunks, oldest first, and how many of its batches are not yet answered."""

    __slots__ = ("chunks", "delayed", "scheduled", "topic", "under_way")

    def __init__(self, topic: str, *, delayed: bool = False) -> None:
        self.topic = topic
        self.delayed = delayed
        """For delay servers."""
        self.chunks: deque[OpenBatch] = deque()
        self.under_way = 0
        self.scheduled = False

    @property
    def idle(self) -> bool:
        return not (self.chunks or self.under_way or self.scheduled)

    def fitting(
        self, size: int, rows_max: int, size_max: int, now: float, count: int = 1
    ) -> OpenBatch | None:
        """The open chunk, if one more row (or `count`) of `size` bytes may still join it."""
        if not self.chunks:
            return None
        chunk = self.chunks[-1]
        if (
            len(chunk.rows) + count > rows_max
            or chunk.size + size > size_max
            or now - chunk.opened_at > CHUNK_AGE_MAX_S
        ):
            return None
        return chunk
