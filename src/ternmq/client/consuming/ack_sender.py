"""Sends acks, retries and rejections to one broker, and waits for their answers.

Acks ride on the next pull, or go alone after at most 200 ms (Q13 allows 5 s); in an ordered
subscription at once. Retries and rejections always go alone: rejections at once, retries after at
most 20 ms, so that single failures among many messages share requests. All are kept
until answered and sent again after a lost connection: twice does no harm. In an ordered
subscription nothing rides on pulls, whose answers do not say what came too late. Belongs to one
event loop.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from ternmq.client.consuming.pending_acks import PendingAcks
from ternmq.client.model.delivery import Outcome
from ternmq.client.transport.answer_deadlines import SWEPT_MIN_S, AnswerDeadlines
from ternmq.core.errors import Closed, TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.rpc.connection import Connection
from ternmq.wire.messages.pull import Ack, Acked, Done
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack

ACK_DELAY_S = 0.2
URGENT_DELAY_S = 0.005  # Enough for those of one turn of the loop to share a request.
RETRY_DELAY_S = 0.02  # Below a broker's tick, so a retry comes no later for it.
AGAIN_DELAY_S = 1.0
SENDING_MAX = 4  # Requests with retries under way: who fails a million rows shares the broker.
LATE_KEPT_MAX = 10_000  # Ranges that came late, or were sent again; for who awaits them.
ENTRIES_MAX = 512  # Ranges that wait; beyond, they are sent without waiting for a pull.

log = get_logger()


class AckRequest:
    """One request with outcomes; takes its answer in the moment in which it is read
    (`rpc.connection.AnswerTaker`), and wakes who waits for it."""

    __slots__ = ("connection", "error", "is_answered", "outcomes", "sender", "waiting")

    def __init__(self, sender: "AckSender", connection: Connection, outcomes: list[Done]) -> None:
        self.sender = sender
        self.connection = connection
        self.outcomes = outcomes
        self.is_answered = False
        self.error: TernError | None = None
        self.waiting: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        return self.is_answered

    def set_result(self, payload: bytearray, /) -> None:
        self._finish(payload)

    def set_exception(self, error: TernError, /) -> None:
        self.error = error
        self._finish(None)

    def _finish(self, payload: bytearray | None) -> None:
        self.is_answered = True
        self.sender.answered(self, payload)
        for seen in self.waiting:
            if not seen.done():
                seen.set_result(None)


class AckSender:
    """The outcomes of one subscription's rows, until the broker has them."""

    def __init__(
        self, group: str, background: Background, *, timeout: float, at_once: bool = False
    ) -> None:
        self._group = group
        self._background = background
        self._send_when_due = background.callback(self.send_now)
        self._at_once = at_once  # In order: the next message of a key waits for this ack.
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._subscription = 0
        self._back = asyncio.Event()
        self._sending: dict[AckRequest, None] = {}
        self._deadlines = AnswerDeadlines()
        self.answered = background.callback(self._answered)
        self._riding = 0
        """Pulls under way that took acks along."""
        self._timer: asyncio.TimerHandle | None = None
        self._urgent_timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._late: deque[tuple[int, int, int]] = deque(maxlen=LATE_KEPT_MAX)
        self._repeated: deque[tuple[int, int, int]] = deque(maxlen=LATE_KEPT_MAX)
        self.pending = PendingAcks()
        """Settled and not yet sent; the hot path of acks extends its open range."""

    def joined(self, connection: Connection, subscription: int) -> None:
        """Send to this connection from now on."""
        self._connection, self._subscription = connection, subscription
        self._back.set()
        if self.pending:
            self._send_soon()

    def away(self) -> None:
        self._connection = None
        self._back.clear()

    def stop(self) -> None:
        self._stopped = True
        self._cancel_timers()

    # Riding on pulls.

    def take_along(self) -> list[Done]:
        """Acks for a pull that is about to be sent; it must be answered or failed later."""
        done = [] if self._at_once else self.pending.take_acks()
        self._riding += bool(done)
        return done

    def arrived(self, done: list[Done]) -> None:
        self._riding -= bool(done)

    def failed(self, done: list[Done]) -> None:
        """Told again, also where the consumer has joined elsewhere by now: nobody else would."""
        self._riding -= bool(done)
        self.pending.put_back(done)
        if done:
            self._send_soon()

    # Going alone.

    def settled(
        self, ranges: list[tuple[int, int, int]], outcome: Outcome, *, at_once: bool = False
    ) -> None:
        """(lease, first sequence, end) have an outcome."""
        for lease, first, end in ranges:
            self.pending.add(lease, first, end, outcome)
        self._send_soon(at_once=at_once)

    def settled_one(self, lease: int, sequence: int, outcome: Outcome) -> None:
        """One row is settled: the way of single failures."""
        self.pending.add(lease, sequence, sequence + 1, outcome)
        if self._urgent_timer is None or self.pending.urgent or self._at_once:
            self._send_soon()

    def acked(self, lease: int, sequence: int) -> None:
        """One row is handled that begins a range of its own."""
        self.pending.ack(lease, sequence, sequence + 1)
        if self._timer is None or len(self.pending) > ENTRIES_MAX:
            self._send_soon()

    def _send_soon(self, *, at_once: bool = False) -> None:
        if self._stopped:
            return
        pending = self.pending
        if self._at_once or at_once:
            if self._urgent_timer is None:
                self._urgent_timer = self._loop.call_later(0, self._send_when_due)
        elif pending.urgent or len(pending) > ENTRIES_MAX:
            self._send_within(URGENT_DELAY_S)
        elif pending.waiting:
            self._send_within(RETRY_DELAY_S)
        elif self._timer is None:
            self._timer = self._loop.call_later(ACK_DELAY_S, self._send_when_due)

    def _send_within(self, delay_s: float) -> None:
        """A timer that runs already is enough unless it rings later than this."""
        timer = self._urgent_timer
        if timer is not None:
            if timer.when() <= self._loop.time() + delay_s:
                return
            timer.cancel()
        self._urgent_timer = self._loop.call_later(delay_s, self._send_when_due)

    def send_now(self) -> None:
        """Without waiting for more."""
        self._cancel_timers()
        if self.pending and not self._stopped:  # Else a pull took them along.
            if self.pending.waiting and len(self._sending) >= SENDING_MAX:
                return  # An answer under way goes on with it.
            self._send()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._urgent_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._urgent_timer = None

    def _send(self) -> None:
        """Send what is settled; its answer also shows that acks on earlier pulls have arrived."""
        connection = self._connection
        if connection is None or connection.closed:
            return  # Sent after the reconnect.
        done = self.pending.take()
        request = AckRequest(self, connection, done)
        try:
            payload = pack(Ack(subscription=self._subscription, done=done))
            connection.call_for(request, Command.ACK, payload)
        except BaseException:
            self.pending.put_back(done)  # Whatever went wrong: it was not sent.
            raise
        self._sending[request] = None

    def _send_at_once(self) -> None:
        """Send without waiting for the end of this turn: the answer is waited for."""
        connection = self._connection
        if connection is None:
            return
        connection.cork()
        try:
            self._send()
        finally:
            connection.uncork()

    def _answered(self, request: AckRequest, payload: bytearray | None) -> None:
        self._sending.pop(request, None)
        done, error = request.outcomes, request.error
        if payload is not None:
            if self._at_once or any(each.kind == "reject" for each in done):
                self._look_for_late(unpack(payload, Acked))
            if self.pending:
                self._send_soon()  # More than one request held.
            return
        if request.connection.closed:
            self._put_back(done)
            self._send_soon()  # The consumer may have joined elsewhere before this one closed.
        elif isinstance(error, TernError) and error.retryable:
            self._put_back(done)
            self._loop.call_later(AGAIN_DELAY_S, self._send_when_due)
        else:
            log.error("settled rows were refused", group=self._group, reason=str(error))

    def _put_back(self, done: list[Done]) -> None:
        """Nobody knows whether it counted; when it comes again it may be late because it did."""
        self.pending.put_back(done)
        self._repeated.extend((each.lease, each.first, each.end) for each in done)

    def _look_for_late(self, acked: Acked) -> None:
        late = [rows for rows in acked.late_rows if not _overlap(self._repeated, rows)]
        if late:
            self._late.extend(late)
            count = sum(end - first for _, first, end in late)
            log.warning("outcomes came too late and do not count", group=self._group, rows=count)

    def came_late(self, rows: list[tuple[int, int, int]]) -> bool:
        """Was any of these (lease, first, end) refused because its lease was over?"""
        return bool(self._late) and any(_overlap(self._late, each) for each in rows)

    # Being sure.

    async def flush(self) -> None:
        """Wait until the broker has everything that was settled so far; as long as it goes
        on answering, also longer than the time-out."""
        if self._stopped and self.pending:
            raise Closed(
                "the consumer that got this message is closed: what it had not settled by then "
                "went back to its group and comes again"
            )
        try:
            while self.pending or self._riding or self._sending:
                if await self._flush_some():
                    return
        except TimeoutError as error:
            raise Unavailable(
                f"the broker did not confirm within {self._timeout:g} s; it is told again when it "
                "is back"
            ) from error

    async def _flush_some(self) -> bool:
        """Send what fits one request, and wait for the answers under way. Was that all?"""
        if self._connection is None or self._connection.closed:
            self._back.clear()  # Closed, and the news of it is on its way.
            async with asyncio.timeout(self._timeout):
                await self._back.wait()
        if self.pending or self._riding:
            self._send_at_once()
        await self._all_answered()
        # Frames are handled in order: the acks on pulls came first.
        return bool(self._riding) and not self.pending

    async def _all_answered(self) -> None:
        """Wait for the answers under way; raises what the broker refused."""
        connection = self._connection
        for request in list(self._sending):
            if not request.is_answered:
                await self._taken(request)
            error = request.error
            if error is not None and connection is not None and not connection.closed:
                raise error

    async def _taken(self, request: AckRequest) -> None:
        """Until `_answered` has seen it. Who gives up waiting leaves the answer alone; one timer
        looks after the time of all who wait."""
        seen: asyncio.Future[None] = self._loop.create_future()
        request.waiting.append(seen)
        if self._timeout < SWEPT_MIN_S:
            async with asyncio.timeout(self._timeout):
                await seen
            return
        self._deadlines.watch(seen, self._loop.time() + self._timeout)
        await seen


def _overlap(known: Iterable[tuple[int, int, int]], rows: tuple[int, int, int]) -> bool:
    lease, first, end = rows
    return any(one == lease and a < end and first < b for one, a, b in known)
