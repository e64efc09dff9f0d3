"""The producer: messages in, receipts out.

`send` puts a message into the open batch of its topic and waits for its own future. Open batches
are cut into batches at once when nothing of the topic is under way (in the next turn of the loop,
so that all coroutines of this turn share one batch), and pile up while requests are. So a lone
sender has no delay, and many senders get large batches by themselves, without a linger setting.
Messages for later (`delay`, `at`) have lines of their own, because they go to delay servers.

Message ids are decided when a batch is cut and stay the same in every repeat. What is accepted and
not yet answered is bounded (`SendBuffer`). One event loop, no task per message.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from ternmq.client.codecs.codec import find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.model.outgoing import SendOptions, call_codec, make_body, make_outgoing
from ternmq.client.model.receipt import Published, Receipt
from ternmq.client.model.times import shown
from ternmq.client.producing.accumulator import (
    ROW_COST,
    Accumulator,
    BatchShare,
    DelayLine,
    OpenBatch,
    Row,
    Waiter,
    delay_line_of,
    row_size,
)
from ternmq.client.producing.balancer import Affinity
from ternmq.client.producing.body_sizes import BodySizes
from ternmq.client.producing.deadlines import Deadlines
from ternmq.client.producing.ordered_sender import OrderedSender, Queue
from ternmq.client.producing.producer_batch import OnDone, ProducerBatch, SendWindow
from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.client.producing.send_buffer import SendBuffer, Stats
from ternmq.client.producing.senders import NextTurn, Senders
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, Closed, SendUnknown, TernError
from ternmq.core.ids import check_name
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger

PARTIAL_MAX = 2  # Batches of a topic under way beyond which rows rather pile up.
TOPICS_KEPT_MAX = 4096

KeepUnsent = Callable[[str, str, Row, TernError], None]
"""Takes id, topic, message and why, of a one-way message that is not stored."""

log = get_logger()


class Producer:
    """Everything one client sends."""

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        clock: Clock,
        keep_unsent: KeepUnsent | None = None,
    ) -> None:
        self.config = config
        self._keep_unsent = keep_unsent
        self.buffer = SendBuffer(
            messages_max=config.buffer_messages_max, size_max=config.buffer_size_max
        )
        self._keyring = cluster.keyring
        self.sizes = BodySizes(cluster, config.body_size_max)
        self.codec = find_codec(config.codec)
        self._encoding = config.encoding
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.closed = False
        self._identity = ProducerIdentity(clock)
        self._accumulators: dict[str | DelayLine, Accumulator] = {}
        self._forget_at = TOPICS_KEPT_MAX
        self.background = Background("the producer", self._broken)
        self._cut_when_due = self.background.callback(self._cut)
        self._brokers = Senders(cluster, "realtime", config, self._renewed, self.background)
        self._delays = Senders(cluster, "delay", config, self._renewed, self.background)
        self._next_turn = NextTurn(self._brokers, self._cut_when_due)
        self.ordered = OrderedSender(self, cluster)
        self._deadlines: Deadlines[Accumulator] = Deadlines(
            self._deadline, self._give_up, self.background
        )
        self._drained: asyncio.Future[None] | None = None
        self._sent = self._failed = self._unknown = 0
        self._closing_until = inf

    async def send(self, topic: str, body: Any, options: SendOptions) -> Receipt:
        """Store one message; its receipt says where."""
        row, size = self.prepare(topic, body, options)
        accumulator = self._accumulator(topic, row)
        since = self.loop.time()
        if not self.buffer.take(1, size):
            await self.wait_for_room(1, size)
            accumulator = self._accumulator(topic, row)  # It may have been forgotten.
        future: asyncio.Future[Any] = self.loop.create_future()
        self._add(accumulator, row, size, future, since)
        return await future  # type: ignore[no-any-return]

    def send_nowait(self, topic: str, body: Any, options: SendOptions) -> None:
        """Accept one message; `BufferFull` when there is no room for it now."""
        row, size = self.prepare(topic, body, options)
        accumulator = self._accumulator(topic, row)
        if not self.buffer.take(1, size):
            raise self.buffer.full()
        self._add(accumulator, row, size, None)

    def put(self, topic: str, row: Row, size: int) -> None:
        """Take a prepared message whose room was checked by another thread."""
        self.buffer.force(1, size)
        self._add(self._accumulator(topic, row), row, size, None)

    def add(self, topic: str, row: Row, size: int, waiter: Waiter) -> None:
        """Take a prepared message; its room is taken already."""
        self._add(self._accumulator(topic, row), row, size, waiter)

    async def wait_for_room(self, count: int, size: int) -> None:
        """Wait or raise, as the application chose."""
        if self.config.on_full == "raise":
            raise self.buffer.full()
        await self.buffer.wait(count, size, timeout=self.config.delivery_timeout)
        if self.closed:
            self.buffer.give(count, size)
            raise Closed("this client is closed")

    def prepare(self, topic: str, body: Any, options: SendOptions) -> tuple[Row, int]:
        """Check one message; bare bodies stay bare. Any thread may call this."""
        if self.closed:
            raise Closed("this client is closed")
        codec = self.codec
        if not options and codec is None and type(body) is bytes and len(body) <= self.sizes.small:
            return body, len(body) + ROW_COST
        made = make_body(body, call_codec(options, codec))
        self.sizes.check(topic, len(made))
        row: Row = make_outgoing(made, options, self.clock.now_ms()) if options else made
        return row, row_size(row)

    def _accumulator(self, topic: str, row: Row) -> Accumulator:
        """Where a row waits to be sent."""
        try:
            if isinstance(row, bytes):
                return self._accumulators.get(topic) or self._open(topic, None)
            delay_line = delay_line_of(topic, row)
            if delay_line is None and row.order_key is not None:
                check_name("topic", topic)
                return self.ordered.queue(topic, row.order_key)
            return self._accumulators.get(delay_line or topic) or self._open(topic, delay_line)
        except TypeError:  # A list, for example, that no dict can look for.
            check_name("topic", topic)
            raise

    def _open(self, topic: str, delay_line: DelayLine | None) -> Accumulator:
        check_name("topic", topic)
        if len(self._accumulators) >= self._forget_at:
            self._accumulators = {
                each: kept for each, kept in self._accumulators.items() if not kept.idle
            }
            self._forget_at = max(TOPICS_KEPT_MAX, 2 * len(self._accumulators))
        accumulator = Accumulator(topic, delayed=delay_line is not None)
        self._accumulators[delay_line or topic] = accumulator
        return accumulator

    def _add(
        self,
        accumulator: Accumulator,
        row: Row,
        size: int,
        waiter: Waiter,
        since: float | None = None,
    ) -> None:
        """`since`: when it was sent, if not now; its time counts from then."""
        config = self.config
        if since is None:
            since = self.loop.time()
        open_batch = accumulator.fitting(size, config.batch_rows_max, config.batch_size_max, since)
        if open_batch is None:
            open_batch = self._open_batch(accumulator, since)
        open_batch.rows.append(row)
        open_batch.waiters.append(waiter)
        open_batch.size += size
        if waiter is not None:
            open_batch.awaited = True
        if type(row) is not bytes:
            open_batch.plain = False
        self._cut_soon(accumulator)

    def add_list(
        self, topic: str, rows: Sequence[Row], size: int, share: BatchShare | None
    ) -> None:
        """Let a list that fits one batch join the open one; its room is taken already. Without a
        `share` nobody waits for it."""
        config, now, count = self.config, self.loop.time(), len(rows)
        accumulator = self._accumulators.get(topic) or self._open(topic, None)
        open_batch = accumulator.fitting(
            size, config.batch_rows_max, config.batch_size_max, now, count
        )
        if open_batch is None:
            open_batch = self._open_batch(accumulator, now)
        if share is not None:
            open_batch.shares.append((share, len(open_batch.rows)))
            open_batch.awaited = True
        open_batch.rows.extend(rows)
        open_batch.waiters.extend([share] * count)  # type: ignore[list-item]  # Never waits by row.
        open_batch.size += size
        if open_batch.plain and (count > 1 or type(rows[0]) is not bytes):
            open_batch.plain = set(map(type, rows)) <= {bytes}
        self._cut_soon(accumulator)

    def _open_batch(self, accumulator: Accumulator, since: float) -> OpenBatch:
        open_batch = OpenBatch(since, self.clock.now_ms())
        accumulator.open_batches.append(open_batch)
        if accumulator.under_way >= PARTIAL_MAX:
            self._deadlines.watch(accumulator)
        return open_batch

    def _cut_soon(self, accumulator: Accumulator) -> None:
        if not accumulator.scheduled and (
            accumulator.under_way < PARTIAL_MAX or len(accumulator.open_batches) > 1
        ):
            accumulator.scheduled = True
            self._next_turn.cut(accumulator)

    def _cut(self, accumulator: Accumulator) -> None:
        """Turn open batches into batches, as many as may be under way."""
        accumulator.scheduled = False
        if isinstance(accumulator, Queue):
            self.ordered.cut(accumulator)
            return
        senders = self.senders(accumulator.delayed)
        if not senders.known:
            self._deadlines.watch(accumulator)
            self._look_for(senders)
            return
        open_batches = accumulator.open_batches
        while open_batches:
            last = len(open_batches) == 1
            if accumulator.under_way >= (PARTIAL_MAX if last else self.config.inflight_max):
                self._deadlines.watch(accumulator)
                return
            in_time = self._deadline(open_batches[0]) > self.loop.time()
            handle = self._dispatch if in_time else self._give_up
            handle(accumulator, open_batches.popleft())

    def send_waiting(self, topic: str, delay_line: DelayLine | None) -> None:
        """Send what waits now, so that what comes next is stored behind it."""
        accumulator = self._accumulators.get(delay_line or topic) or self._open(topic, delay_line)
        while accumulator.open_batches and self.senders(accumulator.delayed).known:
            self._dispatch(accumulator, accumulator.open_batches.popleft())

    def _dispatch(self, accumulator: Accumulator, open_batch: OpenBatch) -> None:
        settled = partial(self._settled, accumulator)
        try:
            batch = self.make_batch(accumulator.topic, open_batch, settled)
        except Exception:
            accumulator.open_batches.appendleft(open_batch)  # `_broken` gives it up.
            raise
        accumulator.under_way += 1
        try:
            self.post(batch, self.senders(accumulator.delayed))
        except Exception as bug:
            if not batch.serial:  # No sender has it, to give it up.
                settled(batch, TernError(f"sending failed inside ternmq, by a bug: {bug!r}"))
            raise

    def make_batch(
        self,
        topic: str,
        open_batch: OpenBatch,
        on_done: OnDone,
        identity: ProducerIdentity | None = None,
    ) -> ProducerBatch:
        """Number the rows of an open batch: from here on their ids are decided. By an `identity` of
        its own it is bound to the broker group that it is given to."""
        producer, first = (identity or self._identity).take(len(open_batch.rows))
        published = Published(topic, producer, first, len(open_batch.rows))
        window, bound = self.window(open_batch), identity is not None
        return ProducerBatch(open_batch, published, window=window, on_done=on_done, bound=bound)

    def _renewed(self, before: ProducerBatch) -> ProducerBatch:
        """A batch under new numbers: another group may have forgotten such low ones."""
        made = self.make_batch(before.published.topic, before.open_batch, before.on_done)
        made.take_over(before)
        self._encode(made)
        return made

    def _encode(self, batch: ProducerBatch) -> None:
        keyring = self._keyring if batch.published.topic in self._keyring.topics else None
        batch.encode(app=self.config.app, encoding=self._encoding, keyring=keyring)

    def window(self, open_batch: OpenBatch) -> SendWindow:
        """How long a batch is tried: longer if no caller waits for it (D3)."""
        config = self.config
        if open_batch.awaited:
            return SendWindow(
                open_batch.opened_at + config.delivery_timeout,
                config.request_timeout,
                config.tries_max,
            )
        tried_s = config.resend_after * (config.resend_times + 1)
        return SendWindow(
            min(open_batch.opened_at + tried_s, self._closing_until),
            config.resend_after,
            config.tries_max_nowait,
        )

    def senders(self, delayed: bool) -> Senders:
        """Where messages for now go, or those for later."""
        return self._delays if delayed else self._brokers

    def post(
        self, batch: ProducerBatch, senders: Senders, affinity: Affinity | None = None
    ) -> None:
        """Encode and send; an error goes to the callers that wait for these rows."""
        topic = batch.published.topic
        if self._keyring.topics and self._keyring.finds_first(
            topic, batch.open_batch.rows, lambda: self.post(batch, senders, affinity)
        ):
            return
        if self._encoded(batch):
            senders.next(topic, affinity).put(batch)

    def post_to(self, batch: ProducerBatch, broker_group: str) -> None:
        """Send a batch to one broker group and no other."""
        if self._keyring.topics and self._keyring.finds_first(
            batch.published.topic, batch.open_batch.rows, lambda: self.post_to(batch, broker_group)
        ):
            return
        if self._encoded(batch):
            self._brokers.of(broker_group).put(batch)

    def _encoded(self, batch: ProducerBatch) -> bool:
        try:
            self._encode(batch)
        except TernError as error:
            batch.on_done(batch, error)
        except Exception as error:  # Checks at the call should have refused it.
            batch.unencoded = True
            batch.on_done(batch, BadRequest(f"the message cannot be encoded: {shown(error)}"))
        else:
            return True
        return False

    def _settled(
        self, accumulator: Accumulator, batch: ProducerBatch, error: TernError | None
    ) -> None:
        accumulator.under_way -= 1
        if batch.divisible(error):
            for half in batch.halves():
                accumulator.under_way += 1
                self.post(half, self.senders(accumulator.delayed))
            return
        self.answer(batch, error)
        if accumulator.open_batches and not accumulator.scheduled:
            accumulator.scheduled = True  # Behind the senders just woken: their next rows join.
            self.loop.call_soon(self._cut_when_due, accumulator)

    def answer(self, batch: ProducerBatch, error: TernError | None) -> None:
        """Give every caller that waits for a row of this batch its receipt or error."""
        open_batch = batch.open_batch
        try:
            open_batch.answer(batch.published, error, partial(self._unheard, batch))
        finally:
            self.count(len(open_batch.rows), error)
            self.give_room(len(open_batch.rows), open_batch.size)

    def _unheard(self, batch: ProducerBatch, row: int, error: TernError) -> None:
        """A one-way message is not stored: nobody else knows."""
        topic = batch.published.topic
        if self._keep_unsent is not None:
            id = Receipt(batch.published, row).id
            self._keep_unsent(id, topic, batch.open_batch.rows[row], error)
        self.report(topic, error)

    def count(self, rows: int, error: TernError | None) -> None:
        if error is None:
            self._sent += rows
        elif isinstance(error, SendUnknown):
            self._unknown += rows
        else:
            self._failed += rows

    def give_room(self, count: int, size: int) -> None:
        self.buffer.give(count, size)
        if self._drained is not None and not self.buffer.messages and not self._drained.done():
            self._drained.set_result(None)

    def report(self, topic: str, error: TernError) -> None:
        """Call `on_error`, or log, for a one-way message that was not stored."""
        if self.config.on_error is None:
            log.warning("one-way message not stored", topic=topic, reason=str(error))
            return
        try:
            self.config.on_error(topic, error)
        except Exception:
            log.exception("on_error failed", topic=topic)

    def _look_for(self, senders: Senders) -> None:
        """There are no routes: ask for them, and cut then."""
        if senders.finding is None:
            senders.finding = self.background.task(self._find(senders), name="tern-routes")

    async def _find(self, senders: Senders) -> None:
        attempts = Attempts()
        try:
            while any(self._waiting_for(senders)) or not attempts.failures:
                try:
                    await senders.find()
                    break
                except TernError as error:
                    senders.trouble = error
                    if not error.retryable:
                        self._give_up_all(senders)
                    await attempts.wait()
        finally:
            senders.finding = senders.trouble = None
        for accumulator in self._waiting_for(senders):
            if senders.known:
                self._cut(accumulator)

    def _waiting_for(self, senders: Senders) -> list[Accumulator]:
        return [
            accumulator
            for accumulator in self._accumulators.values()
            if accumulator.open_batches and self.senders(accumulator.delayed) is senders
        ]

    def _give_up_all(self, senders: Senders) -> None:
        """Without servers, where waiting cannot help."""
        for accumulator in self._waiting_for(senders):
            while accumulator.open_batches:
                self._give_up(accumulator, accumulator.open_batches.popleft())

    def _give_up(self, accumulator: Accumulator, open_batch: OpenBatch) -> None:
        """A batch was never sent, and its time is over."""
        accumulator.under_way += 1
        settled = partial(self._settled, accumulator)
        batch = self.make_batch(accumulator.topic, open_batch, settled)
        settled(batch, self.senders(accumulator.delayed).trouble or batch.overdue())

    def _deadline(self, open_batch: OpenBatch) -> float:
        if open_batch.awaited:
            return open_batch.opened_at + self.config.delivery_timeout
        return self.window(open_batch).deadline

    def _broken(self, error: TernError) -> None:
        """Something failed that nobody thought of: nobody may wait for ever because of it."""
        for accumulator in self._accumulators.values():
            while accumulator.open_batches:
                open_batch = accumulator.open_batches.popleft()
                made = self.make_batch(accumulator.topic, open_batch, lambda batch, error: None)
                self.answer(made, error)
        self.ordered.give_up_all(error)
        for sender in (*self._brokers, *self._delays):
            sender.give_up(error)

    def stats(self) -> Stats:
        senders = [*self._brokers, *self._delays]
        return Stats(
            sent=self._sent,
            failed=self._failed,
            unknown=self._unknown,
            buffered=self.buffer.messages,
            buffered_size=self.buffer.size,
            under_way=sum(sender.under_way for sender in senders),
            repeats=sum(sender.repeats for sender in senders),
        )

    async def flush(self) -> None:
        """Wait until everything accepted so far is answered or given up."""
        while self.buffer.messages:
            if self._drained is None or self._drained.done():
                self._drained = self.loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        """Send what was accepted, for at most `delivery_timeout` from now, then stop."""
        if not self.closed:
            self.closed = True
            self._closing_until = self.loop.time() + self.config.delivery_timeout
            for sender in (*self._brokers, *self._delays):
                sender.end_by(self._closing_until)
            await self.flush()
        self._deadlines.stop()
        await self.ordered.stop()
        await self._brokers.stop()
        await self._delays.stop()
