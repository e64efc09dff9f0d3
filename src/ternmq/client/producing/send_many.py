"""`send_many`: a long list of messages, split into batches that are sent side by side (R8).

Lists of bare bodies take the encoder's fast path: nothing here runs Python per message, only C
loops over slices. At most `inflight_max` batches are encoded and not yet answered, so the caller's
list is the only large thing in memory, and the loop gets a turn after every batch. Several batches
in a row go to one broker group (`choosing.Affinity`), which stores them together. Short lists share
batches with what other coroutines send (`share.py`).
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ternmq.batch.encoder import Outgoing, split_rows
from ternmq.client.model.due import make_due
from ternmq.client.model.outgoing import (
    SendOptions,
    adopt_outgoing,
    call_codec,
    make_body,
    make_outgoing,
)
from ternmq.client.model.receipt import BatchReceipt
from ternmq.client.producing.accumulator import Line, OpenBatch, Row, line_of, row_size
from ternmq.client.producing.producer import Producer, copy_error
from ternmq.client.producing.producer_batch import ProducerBatch
from ternmq.client.producing.senders import Senders
from ternmq.client.producing.share import SHARED_ROWS_MAX, SHARED_SIZE_PART, BatchShare, Countdown
from ternmq.client.transport.balancing import Affinity
from ternmq.core.errors import BadRequest, BufferFull, Closed, TernError
from ternmq.core.ids import check_name

TURN_ROWS = 1024  # Rows checked one by one before the loop gets a turn.


class SendMany:
    """One call of `send_many` under way."""

    def __init__(self, producer: Producer, topic: str, options: SendOptions) -> None:
        self._producer = producer
        self._topic = topic
        self._options = options
        self._codec = call_codec(options, producer.codec)
        self._has_options = any(name != "codec" for name in options)
        self._due = make_due(options.get("delay"), options.get("at"))
        self._plain = self._codec is None and options.keys() <= {"codec", "delay", "at"}
        self._receipt = BatchReceipt(0)
        self._stretch = Affinity()
        self._under_way = 0
        self._answered: asyncio.Future[None] | None = None

    async def send(self, bodies: Sequence[Any]) -> BatchReceipt:
        """Send all; parts that fail are listed, an error is raised only when every part failed."""
        self._receipt = receipt = BatchReceipt(len(bodies))
        check_name("topic", self._topic)
        rows = await self._rows(bodies)
        if not self._plain and any(map(_has_order_key, rows)):
            await self._one_by_one(rows)
            return self._finished()
        runs = self._runs(rows)
        if len(runs) == 1 and (size := self._shared_size(rows, runs[0][0])) is not None:
            await self._share(rows, size)
            return self._finished()
        producer, rows_max = self._producer, self._producer.config.batch_rows_max
        for delayed in {isinstance(line, tuple) for line, _, _ in runs}:
            await producer.outlets(delayed).ready()
        sent = 0
        try:
            for line, run_first, run_end in runs:
                outlets = producer.outlets(isinstance(line, tuple))
                producer.flush_line(line)
                for first in range(run_first, run_end, rows_max):
                    chunk = self._chunk(rows[first : min(first + rows_max, run_end)])
                    for start, part in self._split(chunk):
                        await self._part(first + start, part, outlets)
                        sent = first + start + len(part.rows)
        except (BufferFull, Closed) as error:
            receipt.failed(sent, len(rows) - sent, error)
        while self._under_way:
            await self._next_answer()
        return self._finished()

    def _finished(self) -> BatchReceipt:
        receipt = self._receipt
        receipt.finish()
        if receipt.failures and sum(len(rows) for rows, _ in receipt.failures) == len(receipt):
            raise copy_error(receipt.failures[0][1])
        return receipt

    def _shared_size(self, rows: Sequence[Row], line: Line) -> int | None:
        """What a short list counts in the send buffer; None when it is no short one."""
        config = self._producer.config
        if isinstance(line, tuple) or len(rows) > min(SHARED_ROWS_MAX, config.batch_rows_max):
            return None
        size = sum(map(row_size, rows))
        return size if size <= config.batch_size_max // SHARED_SIZE_PART else None

    async def _one_by_one(self, rows: Sequence[Row]) -> None:
        """Each row to where its order key lies; batches are made on the way."""
        producer = self._producer
        told: asyncio.Future[None] = producer.loop.create_future()
        left = Countdown(self._receipt, told)
        for at, row in enumerate(rows):
            if producer.closed:
                raise Closed("this client is closed")
            size = row_size(row)
            if not producer.room.take(1, size):
                try:
                    await producer.wait_for_room(1, size)
                except (BufferFull, Closed) as error:
                    if not at:
                        raise
                    left.failed(at, len(rows) - at, error)
                    break
            producer.add(self._topic, row, size, left.row(at))
            if at % TURN_ROWS == TURN_ROWS - 1:
                await asyncio.sleep(0)
        await told

    async def _share(self, rows: Sequence[Row], size: int) -> None:
        """Join what other coroutines send to this topic at this moment."""
        producer = self._producer
        if producer.closed:
            raise Closed("this client is closed")
        if not producer.room.take(len(rows), size):
            await producer.wait_for_room(len(rows), size)
        told: asyncio.Future[None] = producer.loop.create_future()
        producer.add_list(self._topic, rows, size, BatchShare(self._receipt, told))
        await told

    async def _rows(self, bodies: Sequence[Any]) -> Sequence[Row]:
        """Check everything before anything is sent."""
        if self._plain and set(map(type, bodies)) <= {bytes}:
            return bodies
        self._plain = False
        now_ms = self._producer.clock.now_ms()
        rows: list[Row] = []
        for at, body in enumerate(bodies):
            try:
                rows.append(self._row(body, now_ms))
            except TernError as error:
                raise type(error)(f"message {at}: {error.message}") from error
            if at % TURN_ROWS == TURN_ROWS - 1:
                await asyncio.sleep(0)
        return rows

    def _runs(self, rows: Sequence[Row]) -> list[tuple[Line, int, int]]:
        """Neighbours that may share batches; mostly one run."""
        if self._plain or self._has_options:
            later = None if self._due is None else (self._topic, self._due.relative)
            return [(later or self._topic, 0, len(rows))] if rows else []
        runs: list[tuple[Line, int, int]] = []
        at = 0
        for line, members in groupby(rows, key=lambda row: line_of(self._topic, row)):
            count = sum(1 for _ in members)
            runs.append((line, at, at + count))
            at += count
        return runs

    def _chunk(self, rows: Sequence[Row]) -> OpenBatch:
        producer = self._producer
        chunk = OpenBatch(producer.loop.time(), producer.clock.now_ms())
        chunk.rows = list(rows)
        chunk.awaited = True
        chunk.plain = self._plain or all(type(row) is bytes for row in rows)
        chunk.due = self._due if chunk.plain else None
        chunk.size = sum(map(len if chunk.plain else row_size, rows))  # type: ignore[arg-type]
        return chunk

    def _split(self, chunk: OpenBatch) -> Iterator[tuple[int, OpenBatch]]:
        """Parts that fit one request each, with their first rows; one, unless bodies are large."""
        size_max = self._producer.config.batch_size_max
        if chunk.size <= size_max:
            yield 0, chunk
            return
        sizes = [row_size(row) for row in chunk.rows]
        for start, end in split_rows(sizes, rows_max=len(sizes), size_max=size_max):
            part = OpenBatch(chunk.opened_at, chunk.born_at_ms)
            part.rows, part.plain, part.due = chunk.rows[start:end], chunk.plain, chunk.due
            part.size, part.awaited = sum(sizes[start:end]), True
            yield start, part

    def _row(self, body: Any, now_ms: int) -> Row:
        if isinstance(body, Outgoing):
            if self._has_options:
                raise BadRequest("an Outgoing has its own key, tag and so on; pass no options")
            return adopt_outgoing(body, now_ms)
        made = make_body(body, self._codec)
        return make_outgoing(made, self._options, now_ms) if self._has_options else made

    async def _part(self, first: int, chunk: OpenBatch, outlets: Senders) -> None:
        """Send one batch as soon as there is room for it."""
        producer = self._producer
        while self._under_way >= producer.config.inflight_max:
            await self._next_answer()
        count = len(chunk.rows)
        if not producer.room.take(count, chunk.size):
            if producer.config.on_full == "raise" and not first:
                raise producer.room.full()
            await producer.room.wait(count, chunk.size, timeout=producer.config.delivery_timeout)
        if producer.closed:
            producer.give_room(count, chunk.size)
            raise Closed("this client is closed")
        chunk.opened_at = producer.loop.time()
        self._under_way += 1
        parcel = producer.parcel(
            self._topic, chunk, lambda done, error: self._settled(first, done, error, outlets)
        )
        producer.post(parcel, outlets, self._stretch)
        await asyncio.sleep(0)

    def _settled(
        self, first: int, parcel: ProducerBatch, error: TernError | None, outlets: Senders
    ) -> None:
        rows = len(parcel.chunk.rows)
        if parcel.divisible(error):
            self._halve(first, parcel, outlets)
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

    def _halve(self, first: int, parcel: ProducerBatch, outlets: Senders) -> None:
        """The rows do not fit one batch, or one cannot be sent: find out which."""
        before, after = parcel.halves()
        middle = first + len(before.chunk.rows)
        after.on_done = lambda done, error: self._settled(middle, done, error, outlets)
        self._under_way += 1
        self._producer.post(before, outlets)
        self._producer.post(after, outlets)

    async def _next_answer(self) -> None:
        self._answered = self._producer.loop.create_future()
        await self._answered


def _has_order_key(row: Row) -> bool:
    return isinstance(row, Outgoing) and row.order_key is not None
