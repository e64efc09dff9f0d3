"""`send_many`: splits a list of messages into batches that are sent side by side (R8).

Lists of bare bodies take the encoder's fast path: nothing here runs Python per message, only C
loops over slices. At most `inflight_max` batches are encoded and not yet answered, so the caller's
list is the only large thing in memory, and the loop gets a turn after every batch. Several batches
in a row go to one broker group (`Affinity`), which stores them together. Short lists share
batches with what other coroutines send (`BatchShare`). A list that nobody waits for is given to the
producer as one-way messages are (`accept`, `accept_when_room`).

The bounds of the send buffer hold for lists too (D2): parts are no larger than they are, and where
the application wants to be told (`on_full="raise"`) the whole list has room, or nothing is sent.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Unpack

from ternmq.batch.encoder import Outgoing, split_rows
from ternmq.client.model.due import due_when_sent
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
    ROW_COST,
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
from ternmq.client.producing.balancer import Affinity
from ternmq.client.producing.producer import Producer
from ternmq.client.producing.producer_batch import OnDone, ProducerBatch
from ternmq.client.producing.senders import Senders
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BufferFull, Closed, SendUnknown, TernError
from ternmq.core.ids import check_name

SHORT_ROWS_MAX = 16
TURN_ROWS = 1024  # Rows checked one by one before the loop gets a turn.


class SendMany:
    """One call of `send_many` under way."""

    def __init__(self, producer: Producer, topic: str, options: SendOptions) -> None:
        self._producer = producer
        self._topic = topic
        self._options = options
        self._codec = call_codec(options, producer.codec)
        self._has_options = any(name != "codec" for name in options)
        self._due = due_when_sent(options.get("delay"), options.get("at"))
        self._plain = self._codec is None and options.keys() <= {"codec", "delay", "at"}
        self._alike = True
        """No row brings its own options."""
        self._receipt = BatchReceipt(0)
        self._affinity = Affinity()
        self._under_way = 0
        self._answered: asyncio.Future[None] | None = None
        self._promised: tuple[int, int] | None = None
        """Messages and bytes for which room is taken already, and not yet used."""
        self._sized: tuple[int, list[int]] = (0, [])
        """How many bodies there are, and the bytes of each `_rows_max` of them, where they are
        bytes and nothing else: looked at once, since a look costs as much as encoding them."""
        config, buffer = producer.config, producer.buffer
        self._rows_max = min(config.batch_rows_max, buffer.messages_max)
        self._size_max = min(config.batch_size_max, buffer.size_max)

    async def send(self, bodies: Sequence[Any]) -> BatchReceipt:
        """Send all; parts that fail are listed, an error is raised only when every part failed."""
        self._receipt = BatchReceipt(len(bodies))
        check_name("topic", self._topic)
        rows = await self._rows(bodies)
        if self._producer.config.on_full == "raise":
            self._promise(rows)
        try:
            if not self._plain and any(map(_has_order_key, rows)):
                await self._one_by_one(rows)
            else:
                await self._in_batches(rows)
        finally:
            if self._promised is not None:
                self._producer.give_room(*self._promised)
        return self._finished()

    async def _in_batches(self, rows: Sequence[Row]) -> None:
        runs = self._runs(rows)
        if len(runs) == 1 and (size := self._shared_size(rows, runs[0][0])) is not None:
            await self._share(rows, size)
            return
        producer = self._producer
        for delayed in {delay_line is not None for delay_line, _, _ in runs}:
            await producer.senders(delayed).ready()
        sent = 0
        try:
            for delay_line, run_first, run_end in runs:
                senders = producer.senders(delay_line is not None)
                producer.send_waiting(self._topic, delay_line)
                for first, part in self._parts(rows, run_first, run_end):
                    await self._part(first, part, senders)
                    sent = first + len(part.rows)
        except (BufferFull, Closed) as error:
            self._receipt.failed(sent, len(rows) - sent, error)
        while self._under_way:
            await self._next_answer()

    # Lists that nobody waits for.

    def accept(self, bodies: Sequence[Any]) -> None:
        """Take all of them now, or nothing: `BufferFull`."""
        self._begin_one_way()
        rows = bodies if self._bare(bodies) else list(self._checked(bodies))
        self._promise(rows)
        self._put(rows)

    async def accept_when_room(self, bodies: Sequence[Any]) -> BatchReceipt:
        """Accept a list part by part, as there is room."""
        self._begin_one_way()
        rows = await self._rows(bodies)
        if self._producer.config.on_full == "raise":
            self._promise(rows)
            self._put(rows)
        else:
            for first, part in self._parts(rows, 0, len(rows)):
                count = len(part.rows)
                if not self._producer.buffer.take(count, part.size):
                    await self._producer.wait_for_room(count, part.size)
                self._promised = (count, part.size)
                self._put(rows[first : first + count])
                await asyncio.sleep(0)
        return BatchReceipt(len(rows), waited=False)

    def _begin_one_way(self) -> None:
        check_name("topic", self._topic)
        if self._due is not None:  # Each row says it itself: they share batches with others.
            self._plain = False

    def _put(self, rows: Sequence[Row]) -> None:
        """Give rows to the producer; there is room for them."""
        producer = self._producer
        if producer.closed:
            producer.give_room(*(self._promised or (0, 0)))
            raise Closed("this client is closed")
        if self._plain or not any(map(_goes_its_own_way, rows)):
            for _, part in self._parts(rows, 0, len(rows)):
                producer.add_list(self._topic, part.rows, part.size, None)
            return
        for row in rows:
            producer.add(self._topic, row, row_size(row), None)

    def _promise(self, rows: Sequence[Row]) -> None:
        """Take room for all of them, or tell the caller."""
        buffer, count, size = self._producer.buffer, len(rows), self._whole_size(rows)
        if not buffer.take_all(count, size):
            raise buffer.full(f"and this list has {count} messages, {size} bytes")
        self._promised = (count, size)

    def _whole_size(self, rows: Sequence[Row]) -> int:
        if self._plain:
            count, sizes = self._sized
            size = sum(sizes) if count == len(rows) else sum(map(len, rows))  # type: ignore[arg-type]
            return size + ROW_COST * len(rows)
        return sum(map(row_size, rows))

    async def _take(self, count: int, size: int) -> None:
        """Room for some of them: what was promised, or as soon as there is some."""
        producer = self._producer
        if self._promised is not None:
            self._promised = (self._promised[0] - count, self._promised[1] - size)
        elif not producer.buffer.take(count, size):
            await producer.wait_for_room(count, size)

    def _finished(self) -> BatchReceipt:
        return whole(self._receipt)

    def _shared_size(self, rows: Sequence[Row], delay_line: DelayLine | None) -> int | None:
        """What a short list counts in the send buffer; None when it is no short one."""
        config = self._producer.config
        if delay_line is not None or len(rows) > min(SHARED_ROWS_MAX, self._rows_max):
            return None
        size = self._whole_size(rows)
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
            try:
                await self._take(1, size)
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
        await self._take(len(rows), size)
        answered: asyncio.Future[None] = producer.loop.create_future()
        producer.add_list(self._topic, rows, size, BatchShare(self._receipt, answered))
        await answered

    async def _rows(self, bodies: Sequence[Any]) -> Sequence[Row]:
        """Check everything before anything is sent."""
        if self._bare(bodies):
            return bodies
        rows: list[Row] = []
        for row in self._checked(bodies):
            rows.append(row)
            if len(rows) % TURN_ROWS == 0:
                await asyncio.sleep(0)
        return rows

    def _bare(self, bodies: Sequence[Any]) -> bool:
        """Bytes and nothing else, of which none is too large."""
        self._plain = self._plain and set(map(type, bodies)) <= {bytes}
        if self._plain and bodies:
            small, count, rows_max = self._producer.sizes.small, len(bodies), self._rows_max
            parts = [bodies]
            if count > rows_max:
                parts = [bodies[at : at + rows_max] for at in range(0, count, rows_max)]
            self._sized = count, [sum(map(len, part)) for part in parts]
            if max(self._sized[1]) > small and max(map(len, bodies)) > small:
                list(self._checked(bodies))  # Says which one it is.
        return self._plain

    def _checked(self, bodies: Sequence[Any]) -> Iterator[Row]:
        refuse_idle_options(bodies, self._options)
        now_ms = self._producer.clock.now_ms()
        for at, body in enumerate(bodies):
            try:
                row = self._row(body, now_ms)
                size = len(row if isinstance(row, bytes) else row.body)
                self._producer.sizes.check(self._topic, size)
            except TernError as error:
                raise type(error)(f"message {at}: {error.message}", **error.details) from error
            yield row

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

    def _open_batch(self, rows: Sequence[Row], size: int | None) -> OpenBatch:
        producer = self._producer
        plain = self._plain or all(type(row) is bytes for row in rows)
        if size is None:
            size = sum(map(len if plain else row_size, rows))  # type: ignore[arg-type]
        return OpenBatch(
            producer.loop.time(),
            producer.clock.now_ms(),
            list(rows),
            size,
            plain=plain,
            due=self._due if plain else None,
            awaited=True,
        )

    def _parts(
        self, rows: Sequence[Row], run_first: int, run_end: int
    ) -> Iterator[tuple[int, OpenBatch]]:
        """Parts that fit one request each, with their first rows."""
        count, sizes = self._sized
        sized = self._plain and count == len(rows)
        for at, first in enumerate(range(run_first, run_end, self._rows_max)):
            part_rows = rows[first : min(first + self._rows_max, run_end)]
            open_batch = self._open_batch(part_rows, sizes[at] if sized else None)
            for start, part in self._split(open_batch):
                yield first + start, part

    def _split(self, open_batch: OpenBatch) -> Iterator[tuple[int, OpenBatch]]:
        """One, unless bodies are large."""
        size_max = self._size_max
        if open_batch.size <= size_max:
            if open_batch.plain:
                open_batch.size += ROW_COST * len(open_batch.rows)
            yield 0, open_batch
            return
        sizes = [row_size(row) for row in open_batch.rows]
        for start, end in split_rows(sizes, rows_max=len(sizes), size_max=size_max):
            yield start, open_batch.part(start, end, sum(sizes[start:end]))

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
        await self._take(count, open_batch.size)
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


async def send_many(
    producer: Producer, topic: str, bodies: Sequence[Any], options: SendOptions
) -> BatchReceipt:
    """Send all, by the short way where that will do: a few bodies that are nothing but bytes."""
    size = 0 if options else _short_size(producer, topic, bodies)
    if not size:
        return await SendMany(producer, topic, options).send(bodies)
    count = len(bodies)
    if not producer.buffer.take(count, size):
        await producer.wait_for_room(count, size)
    receipt, answered = BatchReceipt(count), producer.loop.create_future()
    try:
        producer.add_list(topic, bodies, size, BatchShare(receipt, answered))
    except TernError:  # The name of the topic is none.
        producer.give_room(count, size)
        raise
    await answered
    return whole(receipt)


def _short_size(producer: Producer, topic: str, bodies: Sequence[Any]) -> int:
    """What such a list counts in the send buffer; 0: it needs more than the short way."""
    count, small, config = len(bodies), producer.sizes.small, producer.config
    if (
        not 0 < count <= min(SHORT_ROWS_MAX, config.batch_rows_max)
        or producer.codec is not None
        or config.on_full == "raise"
        or producer.closed
        or type(topic) is not str
    ):
        return 0
    size = ROW_COST * count
    for body in bodies:
        if type(body) is not bytes or len(body) > small:
            return 0
        size += len(body)
    return size if size <= config.batch_size_max // SHARED_SIZE_PART else 0


def whole(receipt: BatchReceipt) -> BatchReceipt:
    """All parts are answered; raises if every one of them failed."""
    receipt.finish()
    failures = receipt.failures
    if failures and sum(len(rows) for rows, _ in failures) == len(receipt):
        raise _one_for_all([error for _, error in failures])
    return receipt


def _one_for_all(errors: list[TernError]) -> TernError:
    """Where some rows may be stored that is the error, with the ids of those."""
    unknown = [error for error in errors if isinstance(error, SendUnknown)]
    if unknown:
        return unknown[0].about([each for error in unknown for each in error.ids])
    return errors[0].copy()


def _goes_its_own_way(row: Row) -> bool:
    """Not with its neighbours: where its order key lies, or to a delay server."""
    return isinstance(row, Outgoing) and (
        row.order_key is not None or row.due_at_ms is not None or row.delay_ms is not None
    )


def _has_order_key(row: Row) -> bool:
    return isinstance(row, Outgoing) and row.order_key is not None


def outgoing(body: Any, **options: Unpack[SendOptions]) -> Outgoing:
    """One message of a list that has options of its own, those of `send`: key, delay, at, ttl, …

    `send_many(topic, [outgoing(b"now"), outgoing(b"later", delay=60, key="7")])`.
    """
    made = make_body(body, call_codec(options, None), "say codec='json' or codec='msgpack' here")
    return make_outgoing(made, options, SystemClock().now_ms())
