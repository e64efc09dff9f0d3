"""`send_many`: a long list of messages, split into batches that are sent side by side (R8).

Lists of bare bodies take the encoder's fast path: nothing here runs Python per message, only C
loops over slices. At most `inflight_max` batches are encoded and not yet answered, so the caller's
list is the only large thing in memory, and the loop gets a turn after every batch.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from ternmq.batch.encoder import Outgoing, split_rows
from ternmq.client.outgoing import (
    SendOptions,
    adopt_outgoing,
    call_codec,
    make_body,
    make_outgoing,
)
from ternmq.client.parcel import Parcel
from ternmq.client.producer import Producer
from ternmq.client.receipt import BatchReceipt
from ternmq.client.waiting import ROW_COST, Chunk, Row, row_size
from ternmq.core.errors import BadRequest, Closed, TernError, TooLarge
from ternmq.core.ids import check_name


class Bulk:
    """One call of `send_many` under way."""

    def __init__(self, producer: Producer, topic: str, options: SendOptions) -> None:
        self._producer = producer
        self._topic = topic
        self._options = options
        self._codec = call_codec(options, producer.codec)
        self._has_options = any(name != "codec" for name in options)
        self._receipt = BatchReceipt(0)
        self._under_way = 0
        self._answered: asyncio.Future[None] | None = None

    async def send(self, bodies: Sequence[Any]) -> BatchReceipt:
        """Send all; parts that fail are listed, an error is raised only when every part failed."""
        self._receipt = receipt = BatchReceipt(len(bodies))
        if not bodies:
            return receipt
        producer = self._producer
        rows_max = producer.config.batch_rows_max
        check_name("topic", self._topic)
        await producer.ready()
        producer.flush_topic(self._topic)
        for first in range(0, len(bodies), rows_max):
            rows, sizes, plain = self._rows(bodies[first : first + rows_max], first)
            ranges = split_rows(sizes, rows_max=rows_max, size_max=producer.config.batch_size_max)
            for start, end in ranges:
                part = rows if end - start == len(rows) else rows[start:end]
                await self._part(first + start, part, sum(sizes[start:end]), plain)
        while self._under_way:
            await self._next_answer()
        receipt.finish()
        if receipt.failures and sum(len(rows) for rows, _ in receipt.failures) == len(bodies):
            raise receipt.failures[0][1]
        return receipt

    def _rows(self, bodies: Sequence[Any], first: int) -> tuple[list[Row], list[int], bool]:
        """Check a slice of the list: its rows, what each counts, and whether all are bare."""
        if self._codec is None and not self._has_options and set(map(type, bodies)) == {bytes}:
            return list(bodies), list(map(len, bodies)), True
        now_ms = self._producer.clock.now_ms()
        rows: list[Row] = []
        for at, body in enumerate(bodies):
            try:
                rows.append(self._row(body, now_ms))
            except TernError as error:
                raise type(error)(f"message {first + at}: {error.message}") from error
        return rows, list(map(row_size, rows)), all(type(row) is bytes for row in rows)

    def _row(self, body: Any, now_ms: int) -> Row:
        if isinstance(body, Outgoing):
            if self._has_options:
                raise BadRequest("an Outgoing has its own key, tag and so on; pass no options")
            return adopt_outgoing(body, now_ms)
        made = make_body(body, self._codec)
        return make_outgoing(made, self._options, now_ms) if self._has_options else made

    async def _part(self, first: int, rows: list[Row], size: int, plain: bool) -> None:
        """Send one batch as soon as there is room for it."""
        producer = self._producer
        while self._under_way >= producer.config.inflight_max:
            await self._next_answer()
        size += ROW_COST
        if not producer.room.take(len(rows), size):
            if producer.config.on_full == "raise" and not first:
                raise producer.room.full()
            await producer.room.wait(len(rows), size, timeout=producer.config.delivery_timeout)
        if producer.closed:
            producer.give_room(len(rows), size)
            raise Closed("this client is closed")
        chunk = Chunk(producer.loop.time(), producer.clock.now_ms())
        chunk.rows, chunk.plain, chunk.size = rows, plain, size
        self._under_way += 1
        parcel = producer.parcel(
            self._topic, chunk, lambda done, error: self._settled(first, done, error)
        )
        producer.post(parcel)
        await asyncio.sleep(0)

    def _settled(self, first: int, parcel: Parcel, error: TernError | None) -> None:
        rows = len(parcel.chunk.rows)
        if isinstance(error, TooLarge) and rows > 1:
            self._halve(first, parcel)
            return
        if error is None:
            self._receipt.stored(first, parcel.published)
        else:
            self._receipt.failed(first, rows, error)
        self._producer.count(rows, error)
        self._under_way -= 1
        self._producer.give_room(rows, parcel.chunk.size)
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _halve(self, first: int, parcel: Parcel) -> None:
        """The rows do not fit one batch, or one is too large: find out which."""
        before, after = parcel.halves()
        middle = first + len(before.chunk.rows)
        after.on_done = lambda done, error: self._settled(middle, done, error)
        self._under_way += 1
        self._producer.post(before)
        self._producer.post(after)

    async def _next_answer(self) -> None:
        self._answered = self._producer.loop.create_future()
        await self._answered
