"""`send_many`: splits a list of messages into batches that are sent side by side (R8).

Lists of bare bodies take the encoder's fast path: nothing here runs Python per message, only C
loops over slices. At most `inflight_max` batches are encoded and not yet answered, so the caller's
list is the only large thing in memory, and the loop gets a turn after every batch. Several batches
in a row go to one broker group (`Affinity`), which stores them together. Short lists share
batches with what other coroutines send (`BatchShare`).
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
    refuse_idle_options,
)
from ternmq.client.model.receipt import BatchReceipt
from ternmq.client.producing.accumulator import (
    SHARED_ROWS_MAX,
    SHARED_SIZE_PART,
    BatchShare,
    Countdown,
    DelayLine,
    OpenBatch,
    Row,
    delay_line_of,
    row_size,
)
from ternmq.client.producing.producer import Producer
from ternmq.client.producing.producer_batch import OnDone, ProducerBatch
from ternmq.client.producing.senders import Senders
from ternmq.client.transport.balancing import Affinity
from ternmq.core.errors import BufferFull, Closed, SendUnknown, TernError
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
        self._alike = True
        """No row brings its own options."""
        self._receipt = BatchReceipt(0)
        self._affinity = Affinity()
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
        for delayed in {delay_line is not None for delay_line, _, _ in runs}:
            await producer.senders(delayed).ready()
        sent = 0
        try:
            for delay_line, run_first, run_end in runs:
                senders = producer.senders(delay_line is not None)
                producer.send_waiting(self._topic, delay_line)
                for first in range(run_first, run_end, rows_max):
                    open_batch = self._open_batch(rows[first : min(first + rows_max, run_end)])
                    for start, part in self._split(open_batch):
                        await self._part(first + start, part, senders)
                        sent = first + start + len(part.rows)
        except (BufferFull, Closed) as error:
            receipt.failed(sent, len(rows) - sent, error)
        while self._under_way:
            await self._next_answer()
        return self._finished()

    def _finished(self) -> BatchReceipt:
        receipt = self._receipt
        receipt.finish()
        failures = receipt.failures
        if failures and sum(len(rows) for rows, _ in failures) == len(receipt):
            raise _one_for_all([error for _, error in failures])
        return receipt

    def _shared_size(self, rows: Sequence[Row], delay_line: DelayLine | None) -> int | None:
        """What a short list counts in the send buffer; None when it is no short one."""
        config = self._producer.config
        if delay_line is not None or len(rows) > min(SHARED_ROWS_MAX, config.batch_rows_max):
            return None
        size = sum(map(row_size, rows))
        return size if size <= config.batch_size_max // SHARED_SIZE_PART else None

    async def _one_by_one(self, rows: Sequence[Row]) -> None:
        """Each row to where its order key lies; batches are made on the way."""
        producer = self._producer
        answered: asyncio.Future[None] = producer.loop.create_future()
        left = Countdown(self._receipt, answered)
        for at, row in enumerate(rows):
            if producer.closed:
                raise Closed("this client is closed")
            size = row_size(row)
            if not producer.buffer.take(1, size):
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
        await answered

    async def _share(self, rows: Sequence[Row], size: int) -> None:
        """Join what other coroutines send to this topic at this moment."""
        producer = self._producer
        if producer.closed:
            raise Closed("this client is closed")
        if not producer.buffer.take(len(rows), size):
            await producer.wait_for_room(len(rows), size)
        answered: asyncio.Future[None] = producer.loop.create_future()
        producer.add_list(self._topic, rows, size, BatchShare(self._receipt, answered))
        await answered

    async def _rows(self, bodies: Sequence[Any]) -> Sequence[Row]:
        """Check everything before anything is sent."""
        if self._plain and set(map(type, bodies)) <= {bytes}:
            return bodies
        self._plain = False
        refuse_idle_options(bodies, self._options)
        now_ms = self._producer.clock.now_ms()
        rows: list[Row] = []
        for at, body in enumerate(bodies):
            try:
                rows.append(self._row(body, now_ms))
            except TernError as error:
                raise type(error)(f"message {at}: {error.message}", **error.details) from error
            if at % TURN_ROWS == TURN_ROWS - 1:
                await asyncio.sleep(0)
        return rows

    def _runs(self, rows: Sequence[Row]) -> list[tuple[DelayLine | None, int, int]]:
        """Neighbours that may share batches; mostly one run."""
        if self._plain or (self._has_options and self._alike):
            due = self._due
            delay_line = None if due is None else DelayLine(self._topic, due.relative)
            return [(delay_line, 0, len(rows))] if rows else []
        runs: list[tuple[DelayLine | None, int, int]] = []
        at = 0
        for delay_line, members in groupby(rows, key=lambda row: delay_line_of(self._topic, row)):
            count = sum(1 for _ in members)
            runs.append((delay_line, at, at + count))
            at += count
        return runs

    def _open_batch(self, rows: Sequence[Row]) -> OpenBatch:
        producer = self._producer
        open_batch = OpenBatch(producer.loop.time(), producer.clock.now_ms())
        open_batch.rows = list(rows)
        open_batch.awaited = True
        open_batch.plain = self._plain or all(type(row) is bytes for row in rows)
        open_batch.due = self._due if open_batch.plain else None
        open_batch.size = sum(map(len if open_batch.plain else row_size, rows))  # type: ignore[arg-type]
        return open_batch

    def _split(self, open_batch: OpenBatch) -> Iterator[tuple[int, OpenBatch]]:
        """Parts that fit one request each, with their first rows; one, unless bodies are large."""
        size_max = self._producer.config.batch_size_max
        if open_batch.size <= size_max:
            yield 0, open_batch
            return
        sizes = [row_size(row) for row in open_batch.rows]
        for start, end in split_rows(sizes, rows_max=len(sizes), size_max=size_max):
            part = OpenBatch(open_batch.opened_at, open_batch.born_at_ms)
            part.rows, part.plain, part.due = (
                open_batch.rows[start:end],
                open_batch.plain,
                open_batch.due,
            )
            part.size, part.awaited = sum(sizes[start:end]), True
            yield start, part

    def _row(self, body: Any, now_ms: int) -> Row:
        if isinstance(body, Outgoing):
            self._alike = False
            return adopt_outgoing(body, now_ms)
        made = make_body(body, self._codec)
        return make_outgoing(made, self._options, now_ms) if self._has_options else made

    async def _part(self, first: int, open_batch: OpenBatch, senders: Senders) -> None:
        """Send one batch as soon as there is room for it."""
        producer = self._producer
        while self._under_way >= producer.config.inflight_max:
            await self._next_answer()
        count = len(open_batch.rows)
        if not producer.buffer.take(count, open_batch.size):
            if producer.config.on_full == "raise" and not first:
                raise producer.buffer.full()
            await producer.buffer.wait(
                count, open_batch.size, timeout=producer.config.delivery_timeout
            )
        if producer.closed:
            producer.give_room(count, open_batch.size)
            raise Closed("this client is closed")
        open_batch.opened_at = producer.loop.time()
        self._under_way += 1
        batch = producer.make_batch(
            self._topic, open_batch, lambda done, error: self._settled(first, done, error, senders)
        )
        producer.post(batch, senders, self._affinity)
        await asyncio.sleep(0)

    def _settled(
        self, first: int, batch: ProducerBatch, error: TernError | None, senders: Senders
    ) -> None:
        rows = len(batch.open_batch.rows)
        if batch.divisible(error):
            self._halve(first, batch, senders)
            return
        if error is None:
            self._receipt.stored(first, batch.published)
        else:
            self._receipt.failed(first, rows, batch.published.error_of(error, 0, rows))
        self._producer.count(rows, error)
        self._under_way -= 1
        self._producer.give_room(rows, batch.open_batch.size)
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _halve(self, first: int, batch: ProducerBatch, senders: Senders) -> None:
        """The rows do not fit one batch, or one cannot be sent: find out which."""

        def settled(middle: int) -> OnDone:
            return lambda done, error: self._settled(first + middle, done, error, senders)

        before, after = batch.halves(settled)
        self._under_way += 1
        self._producer.post(before, senders)
        self._producer.post(after, senders)

    async def _next_answer(self) -> None:
        self._answered = self._producer.loop.create_future()
        await self._answered


def _one_for_all(errors: list[TernError]) -> TernError:
    """Where some rows may be stored that is the error, with the ids of those."""
    unknown = [error for error in errors if isinstance(error, SendUnknown)]
    if unknown:
        return unknown[0].about([each for error in unknown for each in error.ids])
    return errors[0].copy()


def _has_order_key(row: Row) -> bool:
    return isinstance(row, Outgoing) and row.order_key is not None
