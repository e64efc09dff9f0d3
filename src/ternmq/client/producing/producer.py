"""The producer: messages in, receipts out.

`send` puts a message into the open chunk of its topic and waits for its own future. Chunks are cut
into batches at once when nothing of the topic is under way (in the next turn of the loop, so that
all coroutines of this turn share one batch), and pile up while requests are. So a lone sender has
no delay, and many senders get large batches by themselves, without a linger setting. Messages for
later (`delay`, `at`) have lines of their own, because they go to delay servers.

Message ids are decided when a batch is cut and stay the same in every repeat. What is accepted and
not yet answered is bounded (`SendBuffer`). One event loop, no task per message.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from ternmq.batch.layout import BATCH_SIZE_MAX
from ternmq.client.config import ClientConfig
from ternmq.client.model.codec import find_codec
from ternmq.client.model.outgoing import SendOptions, call_codec, make_body, make_outgoing
from ternmq.client.model.receipt import Published, Receipt
from ternmq.client.model.times import shown
from ternmq.client.producing.accumulator import (
    ROW_COST,
    Accumulator,
    Line,
    OpenBatch,
    Row,
    Waiter,
    line_of,
    row_size,
)
from ternmq.client.producing.ordered_sender import OrderedSender, Queue
from ternmq.client.producing.producer_batch import OnDone, ProducerBatch, SendWindow
from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.client.producing.send_buffer import SendBuffer
from ternmq.client.producing.senders import Senders
from ternmq.client.producing.share import BatchShare
from ternmq.client.transport.balancing import Affinity
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.link import back_off
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, Closed, SendUnknown, TernError
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger

PARTIAL_MAX = 2  # Batches of a topic under way beyond which rows rather pile up.
TOPICS_KEPT_MAX = 4096

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a client has sent so far; a snapshot."""

    sent: int
    failed: int
    """Certainly not stored."""
    unknown: int
    """Given up without an answer (`SendUnknown`)."""
    buffered: int
    """Accepted and not yet answered, messages."""
    buffered_size: int
    under_way: int
    """Requests sent and not yet answered."""
    repeats: int
    """Requests that were sent again."""


class Producer:
    """Everything one client sends."""

    def __init__(self, links: Cluster, config: ClientConfig, clock: Clock) -> None:
        self.config = config
        self.room = SendBuffer(
            messages_max=config.buffer_messages_max, size_max=config.buffer_size_max
        )
        self.codec = find_codec(config.codec)
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._incarnation = ProducerIdentity(clock)
        self._waiting: dict[Line, Accumulator] = {}
        self._forget_at = TOPICS_KEPT_MAX
        self._brokers = Senders(links, "realtime", config, self._renewed)
        self._delays = Senders(links, "delay", config, self._renewed)
        self.ordered = OrderedSender(self, links)
        self._drained: asyncio.Future[None] | None = None
        self._sent = self._failed = self._unknown = 0
        self._closing_until = inf

    async def send(self, topic: str, body: Any, options: SendOptions) -> Receipt:
        """Store one message; its receipt says where."""
        row, size = self.prepare(body, options)
        waiting = self._line(topic, row)
        if not self.room.take(1, size):
            await self.wait_for_room(1, size)
            waiting = self._line(topic, row)  # It may have been forgotten.
        future: asyncio.Future[Any] = self.loop.create_future()
        self._add(waiting, row, size, future)
        return await future  # type: ignore[no-any-return]

    def send_nowait(self, topic: str, body: Any, options: SendOptions) -> None:
        """Accept one message; `BufferFull` when there is no room for it now."""
        row, size = self.prepare(body, options)
        waiting = self._line(topic, row)
        if not self.room.take(1, size):
            raise self.room.full()
        self._add(waiting, row, size, None)

    def put(self, topic: str, row: Row, size: int) -> None:
        """Take a prepared message whose room was checked by another thread."""
        self.room.force(1, size)
        self._add(self._line(topic, row), row, size, None)

    def add(self, topic: str, row: Row, size: int, waiter: Waiter) -> None:
        """Take a prepared message; its room is taken already."""
        self._add(self._line(topic, row), row, size, waiter)

    async def wait_for_room(self, count: int, size: int) -> None:
        """Wait or raise, as the application chose."""
        if self.config.on_full == "raise":
            raise self.room.full()
        await self.room.wait(count, size, timeout=self.config.delivery_timeout)
        if self.closed:
            self.room.give(count, size)
            raise Closed("this client is closed")

    def prepare(self, body: Any, options: SendOptions) -> tuple[Row, int]:
        """Check one message; bare bodies stay bare. Any thread may call this."""
        if self.closed:
            raise Closed("this client is closed")
        codec = self.codec
        if not options and codec is None and type(body) is bytes and len(body) < BATCH_SIZE_MAX:
            return body, len(body) + ROW_COST
        made = make_body(body, call_codec(options, codec))
        row: Row = make_outgoing(made, options, self.clock.now_ms()) if options else made
        return row, row_size(row)

    def _line(self, topic: str, row: Row) -> Accumulator:
        if isinstance(row, bytes):
            line: Line = topic
        else:
            line = line_of(topic, row)
            if row.order_key is not None and line is topic:
                check_name("topic", topic)
                return self.ordered.queue(topic, row.order_key)
        return self._waiting.get(line) or self._open(line)

    def _open(self, line: Line) -> Accumulator:
        topic = line if isinstance(line, str) else line[0]
        check_name("topic", topic)
        if len(self._waiting) >= self._forget_at:
            self._waiting = {each: kept for each, kept in self._waiting.items() if not kept.idle}
            self._forget_at = max(TOPICS_KEPT_MAX, 2 * len(self._waiting))
        waiting = self._waiting[line] = Accumulator(topic, delayed=isinstance(line, tuple))
        return waiting

    def _add(self, waiting: Accumulator, row: Row, size: int, waiter: Waiter) -> None:
        config = self.config
        now = self.loop.time()
        chunk = waiting.fitting(size, config.batch_rows_max, config.batch_size_max, now)
        if chunk is None:
            chunk = OpenBatch(now, self.clock.now_ms())
            waiting.chunks.append(chunk)
        chunk.rows.append(row)
        chunk.waiters.append(waiter)
        chunk.size += size
        if waiter is not None:
            chunk.awaited = True
        if type(row) is not bytes:
            chunk.plain = False
        self._cut_soon(waiting)

    def add_list(self, topic: str, rows: Sequence[Row], size: int, share: BatchShare) -> None:
        """Let a short list join the open chunk; its room is taken already."""
        config, now, count = self.config, self.loop.time(), len(rows)
        waiting = self._waiting.get(topic) or self._open(topic)
        chunk = waiting.fitting(size, config.batch_rows_max, config.batch_size_max, now, count)
        if chunk is None:
            chunk = OpenBatch(now, self.clock.now_ms())
            waiting.chunks.append(chunk)
        chunk.shares.append((share, len(chunk.rows)))
        chunk.rows.extend(rows)
        chunk.waiters.extend([share] * count)  # type: ignore[list-item]  # Never waits by row.
        chunk.size += size
        chunk.awaited = True
        chunk.plain = chunk.plain and set(map(type, rows)) <= {bytes}
        self._cut_soon(waiting)

    def _cut_soon(self, waiting: Accumulator) -> None:
        if not waiting.scheduled and (waiting.under_way < PARTIAL_MAX or len(waiting.chunks) > 1):
            waiting.scheduled = True
            self.loop.call_soon(self._cut, waiting)

    def _cut(self, waiting: Accumulator) -> None:
        """Turn chunks into batches, as many as may be under way."""
        waiting.scheduled = False
        if isinstance(waiting, Queue):
            self.ordered.cut(waiting)
            return
        outlets = self.outlets(waiting.delayed)
        if not outlets.known:
            self._look_for(outlets)
            return
        chunks = waiting.chunks
        while chunks:
            open_chunk = len(chunks) == 1
            if waiting.under_way >= (PARTIAL_MAX if open_chunk else self.config.inflight_max):
                return
            self._dispatch(waiting, chunks.popleft())

    def flush_line(self, line: Line) -> None:
        """Cut what waits, so that what comes next is stored behind it."""
        waiting = self._waiting.get(line) or self._open(line)
        while waiting.chunks and self.outlets(waiting.delayed).known:
            self._dispatch(waiting, waiting.chunks.popleft())

    def _dispatch(self, waiting: Accumulator, chunk: OpenBatch) -> None:
        waiting.under_way += 1
        parcel = self.parcel(waiting.topic, chunk, partial(self._settled, waiting))
        self.post(parcel, self.outlets(waiting.delayed))

    def parcel(
        self,
        topic: str,
        chunk: OpenBatch,
        on_done: OnDone,
        incarnation: ProducerIdentity | None = None,
    ) -> ProducerBatch:
        """Number the rows of a chunk: from here on their ids are decided."""
        producer, first = (incarnation or self._incarnation).take(len(chunk.rows))
        published = Published(topic, producer, first, len(chunk.rows))
        return ProducerBatch(chunk, published, window=self.window(chunk), on_done=on_done)

    def _renewed(self, before: ProducerBatch) -> ProducerBatch:
        """The same rows under new numbers: another group may have forgotten such low ones."""
        made = self.parcel(before.published.topic, before.chunk, before.on_done)
        made.take_over(before)
        made.encode(app=self.config.app, encoding=self.config.encoding)
        return made

    def window(self, chunk: OpenBatch) -> SendWindow:
        """How long it is tried. What nobody waits for has the longer breath (D3)."""
        config = self.config
        if chunk.awaited:
            return SendWindow(chunk.opened_at + config.delivery_timeout, config.request_timeout)
        tried_s = config.resend_after * (config.resend_times + 1)
        return SendWindow(min(chunk.opened_at + tried_s, self._closing_until), config.resend_after)

    def outlets(self, delayed: bool) -> Senders:
        """Where messages for now go, or those for later."""
        return self._delays if delayed else self._brokers

    def post(
        self, parcel: ProducerBatch, outlets: Senders, stretch: Affinity | None = None
    ) -> None:
        """Encode and send; whatever goes wrong is told to who waits for these rows."""
        if self._encoded(parcel):
            outlets.next(parcel.published.topic, stretch).put(parcel)

    def post_to(self, parcel: ProducerBatch, broker_group: str) -> None:
        """The same to one broker group and no other."""
        if self._encoded(parcel):
            self._brokers.of(broker_group).put(parcel)

    def _encoded(self, parcel: ProducerBatch) -> bool:
        try:
            parcel.encode(app=self.config.app, encoding=self.config.encoding)
        except TernError as error:
            parcel.on_done(parcel, error)
        except Exception as error:  # Checks at the call should have refused it.
            parcel.unencoded = True
            parcel.on_done(parcel, BadRequest(f"the message cannot be encoded: {shown(error)}"))
        else:
            return True
        return False

    def _settled(
        self, waiting: Accumulator, parcel: ProducerBatch, error: TernError | None
    ) -> None:
        waiting.under_way -= 1
        if parcel.divisible(error):
            for half in parcel.halves():
                waiting.under_way += 1
                self.post(half, self.outlets(waiting.delayed))
            return
        self.answer(parcel, error)
        if waiting.chunks and not waiting.scheduled:
            waiting.scheduled = True  # Behind the senders just woken: their next rows join.
            self.loop.call_soon(self._cut, waiting)

    def answer(self, parcel: ProducerBatch, error: TernError | None) -> None:
        """Tell everybody who waits for a row of this batch."""
        chunk, published = parcel.chunk, parcel.published
        if error is None:
            for row, waiter in enumerate(chunk.waiters):
                if waiter is not None and not waiter.done():
                    waiter.set_result(Receipt(published, row))
        else:
            for waiter in chunk.waiters:
                if waiter is None:
                    self.report(published.topic, error)
                elif not waiter.done():
                    waiter.set_exception(copy_error(error))
        if chunk.shares:
            chunk.answer_lists(published, error)
        self.count(len(chunk.rows), error)
        self.give_room(len(chunk.rows), chunk.size)

    def count(self, rows: int, error: TernError | None) -> None:
        if error is None:
            self._sent += rows
        elif isinstance(error, SendUnknown):
            self._unknown += rows
        else:
            self._failed += rows

    def give_room(self, count: int, size: int) -> None:
        self.room.give(count, size)
        if self._drained is not None and not self.room.messages and not self._drained.done():
            self._drained.set_result(None)

    def report(self, topic: str, error: TernError) -> None:
        """A one-way message was not stored: nobody waits, so say it once."""
        if self.config.on_error is None:
            log.warning("one-way message not stored", topic=topic, reason=str(error))
            return
        try:
            self.config.on_error(topic, error)
        except Exception:
            log.exception("on_error failed", topic=topic)

    def _look_for(self, outlets: Senders) -> None:
        """There are no routes: ask for them, and cut then."""
        if outlets.finding is None:
            outlets.finding = self.loop.create_task(self._find(outlets), name="tern-routes")

    async def _find(self, outlets: Senders) -> None:
        failures = 0
        try:
            while any(self._waiting_for(outlets)) or not failures:
                try:
                    await outlets.find()
                    break
                except TernError as error:
                    self._expire(outlets, error)
                    failures += 1
                    await asyncio.sleep(back_off(failures))
        finally:
            outlets.finding = None
        for waiting in self._waiting_for(outlets):
            if outlets.known:
                self._cut(waiting)

    def _waiting_for(self, outlets: Senders) -> list[Accumulator]:
        return [
            waiting
            for waiting in self._waiting.values()
            if waiting.chunks and self.outlets(waiting.delayed) is outlets
        ]

    def _expire(self, outlets: Senders, error: TernError) -> None:
        """Nobody is known: give up what waited too long, or all if waiting cannot help."""
        now = self.loop.time()
        for waiting in self._waiting_for(outlets):
            chunks = waiting.chunks
            while chunks and (not error.retryable or self.window(chunks[0]).deadline < now):
                waiting.under_way += 1
                settled = partial(self._settled, waiting)
                settled(self.parcel(waiting.topic, chunks.popleft(), settled), error)

    def stats(self) -> Stats:
        outlets = [*self._brokers, *self._delays]
        return Stats(
            sent=self._sent,
            failed=self._failed,
            unknown=self._unknown,
            buffered=self.room.messages,
            buffered_size=self.room.size,
            under_way=sum(outlet.under_way for outlet in outlets),
            repeats=sum(outlet.repeats for outlet in outlets),
        )

    async def flush(self) -> None:
        """Wait until everything accepted so far is answered or given up."""
        while self.room.messages:
            if self._drained is None or self._drained.done():
                self._drained = self.loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        """Send what was accepted, for at most `delivery_timeout` from now, then stop."""
        if not self.closed:
            self.closed = True
            self._closing_until = self.loop.time() + self.config.delivery_timeout
            for outlet in (*self._brokers, *self._delays):
                outlet.end_by(self._closing_until)
            await self.flush()
        await self.ordered.stop()
        await self._brokers.stop()
        await self._delays.stop()


def copy_error(error: TernError) -> TernError:
    """Everybody who waits gets an error of their own: raising writes a traceback into it."""
    copied = type(error)(error.message)
    copied.details = error.details
    return copied
