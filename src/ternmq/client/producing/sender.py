"""Sends batches to one broker group, in order, each until it is answered.

1. Connection lost, or no answer within `request_timeout` (`resend_after` for one-way messages): the
   result is indefinite, so the same bytes go to the same group again, in the original order; the
   broker recognises a repeat.
2. Refused for now (full disk, read-only, paused): nothing was stored. Where it is the group that
   cannot, it goes to others until its time is over, or until all have said so and it was tried
   three times; else three quick tries, then the caller is told. Over a limit that all groups have
   the broker says when there is room: the topic's batches wait for that, together and in order,
   while it lies within `delivery_timeout`; else the caller is told. What was never sent because the
   group cannot be reached goes to another too.
   Order keys that live here wait for a group without its replicas as for one that is away.
3. Refused for good: the caller is told at once.
4. A batch's time (`delivery_timeout`, or the resend window of one-way messages) is over:
   `SendUnknown` if bytes may have arrived, else `Unavailable`.
5. Later batches never run so far ahead of an unanswered one that the broker would have forgotten
   its numbers when it is repeated.

Belongs to one event loop. Never encodes, never changes a batch's bytes, never drops one silently.
"""

import asyncio
from collections import deque
from typing import Protocol

from ternmq.client.producing.circuit_breaker import CircuitBreaker
from ternmq.client.producing.producer_batch import ProducerBatch
from ternmq.client.transport.link import Link, back_off
from ternmq.core.errors import (
    BufferFull,
    Closed,
    DiskFailed,
    DiskFull,
    Moved,
    NotMaster,
    OverLimit,
    ProtocolError,
    ReadOnly,
    TernError,
    Unavailable,
)
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.rpc.connection import Connection
from ternmq.wire.messages.publish import PUBLISHED
from ternmq.wire.numbers import Command

REFUSALS_MAX = 3
REQUESTS_MAX = 256  # Under way at once.
AHEAD_MAX = 400  # Batches sent beyond the oldest unanswered one; a broker remembers the last 512.
SWEEP_S = 0.1
_PUBLISH = int(Command.PUBLISH)
OF_THE_GROUP = (DiskFull, NotMaster, ReadOnly)
"""Refusals that another group may not have, and that this one will have for a while."""
OF_ITS_REPLICAS = (NotMaster, ReadOnly)
"""Of these, those that end when its servers are there again."""

log = get_logger()


class OtherBrokerGroups(Protocol):
    """Where a batch may go that this group does not take."""

    def elsewhere(self, batch: ProducerBatch, *, stored: bool) -> bool:
        """Give it to another group, as a new one; False where there is none now."""

    def left(self, batch: ProducerBatch) -> bool:
        """Is there a group that has not refused it yet?"""


class Sender:
    """The line of batches to one broker group."""

    def __init__(
        self,
        broker_group: str,
        link: Link,
        others: OtherBrokerGroups,
        background: Background,
        *,
        allow_duplicates: bool,
    ) -> None:
        """`allow_duplicates`: what may be stored here goes to another group too, when this one
        does not answer."""
        self.broker_group = broker_group
        self._background = background
        self._guarded = background.callback
        self._sweep_when_due = background.callback(self._sweep)
        self.take_answer = background.callback(self._answered)
        self.breaker = CircuitBreaker()
        self._allow_duplicates = allow_duplicates
        self._link = link
        self._others = others
        self._waiting: deque[ProducerBatch] = deque()
        self._under_way: dict[int, ProducerBatch] = {}
        self._later: dict[ProducerBatch, None] = {}  # In order: repeats leave as they came.
        self._held: dict[str, list[ProducerBatch]] = {}
        """By topic: those of `_later` that wait until there is room below a limit."""
        self._open: dict[int, int] = {}
        """Unanswered batches by origin, oldest first: origins only grow."""
        self._serial = 0
        self._loop = asyncio.get_running_loop()
        self._sweeping: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None
        self.repeats = 0

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._under_way or self._later)

    @property
    def stopping(self) -> bool:
        """The server is about to stop."""
        return self._link.stopping

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    @property
    def connection(self) -> Connection | None:
        return self._link.connection

    def put(self, batch: ProducerBatch) -> None:
        """Send it as soon as its turn comes."""
        self._serial += 1
        batch.serial = self._serial
        batch.tried.append(self.broker_group)
        if batch.origin not in self._open:
            batch.origin = batch.serial
        self._open[batch.origin] = self._open.get(batch.origin, 0) + 1
        self._waiting.append(batch)
        if self._sweeping is None:  # First: whatever happens below, its time will be up.
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep_when_due)
        self._pump()

    def _pump(self) -> None:
        if not self._waiting:
            return
        connection = self._link.connection
        if connection is None or connection.closed:
            if self._connecting is None or self._connecting.done():
                self._connecting = self._background.task(self._connect(), name="tern-sender")
            return
        last = next(iter(self._open)) + AHEAD_MAX
        while self._waiting and len(self._under_way) < REQUESTS_MAX:
            if self._waiting[0].serial > last:
                return
            batch = self._waiting.popleft()
            if self._held and (behind := self._held.get(batch.published.topic)):
                batch.refusal = batch.refusal or behind[0].refusal
                self._later[batch] = None
                behind.append(batch)
                continue
            self._under_way[batch.serial] = batch
            self._transmit(connection, batch)

    async def _connect(self) -> None:
        """Try until there is a connection or nothing is left to send."""
        try:
            while self._waiting:
                try:
                    await self._link.get()
                    break
                except TernError as error:
                    if not error.retryable:  # Else the link spaces the attempts, the sweep ends.
                        self._fail_all(error)
                    self.breaker.failed(self._loop.time())
                    self._move_waiting(error)
        finally:
            self._connecting = None
        self._pump()

    def _move_waiting(self, error: TernError) -> None:
        """The group cannot be reached: give batches that were never sent to other groups."""
        for batch in list(self._waiting):
            batch.tries += 1
            if batch.tried_enough:
                self._drop(batch)
                self._finish(batch, batch.overdue() if batch.transmitted else error.copy())
            elif not batch.transmitted or self._allow_duplicates:
                self._move(batch)

    def _move(self, batch: ProducerBatch) -> bool:
        """To another group, if there is one; it is no more ours then."""
        batch.finished = self._others.elsewhere(batch, stored=bool(batch.unanswered))
        if batch.finished:
            self._drop(batch)
            self._close(batch)
        return batch.finished

    def _transmit(self, connection: Connection, batch: ProducerBatch) -> None:
        self.repeats += batch.transmitted
        batch.transmitted = True
        batch.sent_to(connection.welcome.epoch)
        batch.sent_at = self._loop.time()
        try:
            connection.call_for(_Transmission(self, batch, connection), _PUBLISH, batch.data)
        except RuntimeError:
            # The transport is closed already and the news of it is on its way.
            self._under_way.pop(batch.serial, None)
            self._put_later(batch)

    def _answered(
        self, batch: ProducerBatch, connection: Connection, answer: bytearray | TernError
    ) -> None:
        error = answer if isinstance(answer, TernError) else None
        if error is not None and _definite(error, connection):
            batch.refusal = error = self._named(error)
            batch.refused_by_epoch(connection.welcome.epoch, error)
        if batch.finished or batch.serial not in self._under_way:
            return  # Answered twice, or given up meanwhile.
        if not isinstance(answer, TernError):
            self._stored(batch, connection, answer)
        elif connection.closed or isinstance(answer, Unavailable):
            self._again(batch, connection, answer)
        else:
            self._refused(batch, error or answer)

    def _stored(self, batch: ProducerBatch, connection: Connection, payload: bytearray) -> None:
        published = batch.published
        if len(payload) < PUBLISHED.size:
            self._finish(batch, ProtocolError("the broker's receipt is cut off"))
            return
        _, base, stored_at_ms, count, flags = PUBLISHED.unpack_from(payload)
        if count != published.count:
            text = f"the broker stored {count} messages of {published.count}"
            self._finish(batch, ProtocolError(text))
            return
        group = connection.welcome.broker_group or self.broker_group
        published.answered(group, base, stored_at_ms, flags)
        if self.breaker.failures:
            self.breaker.worked()
        self._finish(batch, None)

    def _again(self, batch: ProducerBatch, connection: Connection, error: TernError) -> None:
        """Indefinite: back into line, at its old place."""
        batch.trouble = error.message
        if isinstance(error, ProtocolError):
            batch.refusals += 1  # The broker cut us off, perhaps because of these very bytes.
            if batch.refusals >= REFUSALS_MAX:
                self._finish(batch, error)
                return
        if batch.tried_enough:
            self._finish(batch, batch.overdue())
            return
        del self._under_way[batch.serial]
        if connection.closed:
            self._waiting = deque(sorted((batch, *self._waiting), key=_serial))
            # After all requests of the lost connection are back.
            self._loop.call_soon(self._guarded(self._pump))
        else:
            self._put_later(batch)

    def _named(self, error: TernError) -> TernError:
        """With the group that cannot, for whoever has to mend it."""
        if not isinstance(error, OF_THE_GROUP):
            return error
        details = error.details | {"broker_group": self.broker_group}
        return type(error)(f"broker group {self.broker_group!r}: {error.message}", **details)

    def _refused(self, batch: ProducerBatch, error: TernError) -> None:
        """Definite: this broker has not stored it."""
        over = isinstance(error, OverLimit) and error.retryable
        if isinstance(error, OF_THE_GROUP):
            self.breaker.failed(self._loop.time())
        if batch.tried_enough and error.retryable:
            self._finish(batch, batch.overdue())
            return
        if over or isinstance(error, OF_THE_GROUP):
            batch.refused_by.add(self.broker_group)
            sure = not batch.unanswered or self._allow_duplicates
            if sure and self._move(batch):
                return
        wait = error.wait if isinstance(error, OverLimit) and over else None
        if wait is not None:
            if self._loop.time() + wait < batch.deadline:
                self._hold(batch, wait)
            else:
                self._finish(batch, error)
            return
        batch.refusals += 1
        final = isinstance(error, BufferFull | Moved)
        if not self._waits(batch, error):
            final = final or batch.refusals >= REFUSALS_MAX
        if not error.retryable or final:
            self._finish(batch, error)
            return
        del self._under_way[batch.serial]
        self._put_later(batch)

    def _waits(self, batch: ProducerBatch, error: TernError) -> bool:
        """Is it tried until its time is over? It is bound to this group; or perhaps stored, by a
        try before, so that this refusal is not the answer; or another group may take it soon."""
        if batch.bound:
            return isinstance(error, OF_ITS_REPLICAS)
        return isinstance(error, OF_THE_GROUP) and (
            bool(batch.unanswered) or self._others.left(batch)
        )

    def _hold(self, batch: ProducerBatch, wait: float) -> None:
        """A topic is over a limit: nothing of it is sent until there is room, then in order."""
        topic = batch.published.topic
        del self._under_way[batch.serial]
        self._later[batch] = None
        if topic not in self._held:
            self._held[topic] = []
            self._loop.call_later(wait, self._guarded(self._let_go), topic)
        self._held[topic].append(batch)

    def _let_go(self, topic: str) -> None:
        held = [batch for batch in self._held.pop(topic) if batch in self._later]
        for batch in held:
            del self._later[batch]
        self._waiting = deque(sorted((*held, *self._waiting), key=_serial))
        self._pump()

    def _put_later(self, batch: ProducerBatch) -> None:
        self._later[batch] = None
        self._loop.call_later(back_off(batch.refusals), self._guarded(self._put_back), batch)

    def _put_back(self, batch: ProducerBatch) -> None:
        if batch in self._later:
            del self._later[batch]
            self._waiting = deque(sorted((batch, *self._waiting), key=_serial))
            self._pump()

    def _finish(self, batch: ProducerBatch, error: TernError | None) -> None:
        self._under_way.pop(batch.serial, None)
        batch.finished = True
        try:
            batch.on_done(batch, error)  # May put halves of it, so its origin stays open until now.
        except Exception as bug:
            batch.abandon(bug)
            raise
        self._close(batch)
        if self._waiting:
            self._pump()

    def _close(self, batch: ProducerBatch) -> None:
        self._open[batch.origin] -= 1
        if not self._open[batch.origin]:
            del self._open[batch.origin]

    def _sweep(self) -> None:
        """Give up what is overdue and repeat what was not answered."""
        self._sweeping = None
        now = self._loop.time()
        for batch in [*self._under_way.values(), *self._waiting, *self._later]:
            if now >= batch.deadline:
                self._drop(batch)
                self._finish(batch, batch.overdue())
            elif batch.serial in self._under_way and now - batch.sent_at > batch.again_after:
                connection = self._link.connection
                self.breaker.failed(now)
                if batch.tried_enough:
                    self._drop(batch)
                    self._finish(batch, batch.overdue())
                    continue
                if self._allow_duplicates and self._move(batch):
                    continue
                if connection is not None and not connection.closed:
                    log.warning("no answer, sending again", topic=batch.published.topic)
                    self._transmit(connection, batch)
        if not self.idle and self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep_when_due)

    def _drop(self, batch: ProducerBatch) -> None:
        self._later.pop(batch, None)
        self._under_way.pop(batch.serial, None)
        if batch in self._waiting:
            self._waiting.remove(batch)

    def _fail_all(self, error: TernError) -> None:
        for batch in list(self._waiting):
            self._drop(batch)
            self._finish(batch, batch.overdue() if batch.transmitted else error)

    def end_by(self, moment: float) -> None:
        """Try nothing for longer than that."""
        for batch in [*self._under_way.values(), *self._waiting, *self._later]:
            batch.deadline = min(batch.deadline, moment)

    def stop(self) -> None:
        """Give up everything that is not answered."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self.give_up(Closed("the client was closed before the message was sent"))

    def give_up(self, error: TernError) -> None:
        """Everything: `error` for what was never sent, of the rest nobody knows."""
        for batch in [*self._under_way.values(), *self._waiting, *self._later]:
            self._drop(batch)
            self._finish(batch, batch.overdue() if batch.transmitted else error)


class _Transmission:
    """One try of a batch; `rpc.connection.AnswerTaker`."""

    __slots__ = ("_batch", "_connection", "_done", "_sender")

    def __init__(self, sender: Sender, batch: ProducerBatch, connection: Connection) -> None:
        self._sender = sender
        self._batch = batch
        self._connection = connection
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, payload: bytearray) -> None:
        self._done = True
        self._sender.take_answer(self._batch, self._connection, payload)

    def set_exception(self, error: TernError) -> None:
        self._done = True
        self._sender.take_answer(self._batch, self._connection, error)


def _definite(error: TernError, connection: Connection) -> bool:
    """Did the broker itself say that nothing was stored?"""
    unsure = isinstance(error, Unavailable | DiskFailed) or type(error) is TernError
    return not connection.closed and not unsure


def _serial(batch: ProducerBatch) -> int:
    return batch.serial
