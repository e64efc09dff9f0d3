"""One consumer at one broker group: joins, pulls, settles, renews, rejoins after a lost link.

1. At most two pulls are under way, and new ones are started only while half of `prefetch` is free,
   so a slow handler holds a bounded number of rows. A pull waits at the broker for something.
2. The `AckSender` sends what became of rows.
3. `LeaseRenewal` keeps the leases of what is held. After a reconnect the client presents those;
   rows of leases that are gone and not yet shown to the application are dropped, and rows it has in
   hand are not shown a second time when they are delivered again (D5).
4. A lease counts from the moment in which it was asked for, by a clock that goes on while the
   process is stopped: who shows rows looks at it (`Delivery.until`), so nothing is begun that lay
   in a buffer or a socket for too long.

Belongs to one event loop; only `settle_later` may be called from other threads.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident

from ternmq.batch.envelope import Envelope, read_envelopes
from ternmq.client.consuming.ack_sender import AckSender
from ternmq.client.consuming.held_rows import HeldRows
from ternmq.client.consuming.lease_renewal import LeaseRenewal
from ternmq.client.consuming.replica_fetch import ReplicaFetch, Whole
from ternmq.client.consuming.settle_receipts import Flushing, RowsReceipt
from ternmq.client.consuming.subscription_plan import DeliverySink, SubscriptionPlan
from ternmq.client.model.delivery import (
    ACK,
    BACK,
    Delivery,
    Outcome,
    SettleReceipt,
    retry_outcome,
)
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.link import Link, back_off
from ternmq.core.errors import Closed, Corrupt, ProtocolError, TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.hello import Empty, Notice
from ternmq.wire.messages.pull import DELIVERED, Done, Join, Joined, Leave, Pull
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

PULLS_MAX = 2
PULL_SIZE_MAX = 2 * MIB
PULL_WAIT_MS = 10_000
PULL_WAIT_PART = 4
"""And at most this part of a lease, which counts from when the pull was sent."""
HELD_SIZE_MAX = 64 * MIB

log = get_logger()


class Subscription:
    """The part of a consumer that one broker group knows."""

    __slots__ = (
        "_acks",
        "_asked",
        "_at_once",
        "_away",
        "_background",
        "_broker_group",
        "_broker_stopping",
        "_connection",
        "_elsewhere",
        "_flowing",
        "_held",
        "_lease_s",
        "_link",
        "_loop",
        "_now",
        "_number",
        "_on_lost",
        "_on_notice",
        "_pending",
        "_plan",
        "_pull_at",
        "_pulls",
        "_renewal",
        "_replica_fetch",
        "_resting",
        "_sink",
        "_stopping",
        "_task",
        "_woken",
        "flushing",
        "thread",
    )

    def __init__(
        self,
        link: Link,
        plan: SubscriptionPlan,
        sink: DeliverySink,
        *,
        reader: Link,
        now: Callable[[], float],
    ) -> None:
        """`reader` leads to a replica, for bytes that the master leaves out. `now` is the clock of
        leases (`core.clock.elapsed`)."""
        self._link = link
        self._now = now
        self._replica_fetch = ReplicaFetch(reader, sink.failed)
        self._plan = plan
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.flushing = Flushing(self.flush)
        self._connection: Connection | None = None
        """Joined on it; None while away."""
        self._broker_group = ""
        self._number = 0
        self._lease_s = 60.0
        self._away = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._broker_stopping = False  # The broker is about to stop.
        self._resting = False
        self._background = Background("a consumer", sink.failed)
        self._on_lost = self._background.callback(self._lost)
        self._on_notice = self._background.callback(self._noticed)
        self._acks = AckSender(
            plan.group, self._background, timeout=plan.timeout, at_once=plan.ordered
        )
        self._at_once = plan.ordered
        self._pending = self._acks.pending
        self._held = HeldRows()
        self._renewal = LeaseRenewal(
            self._held, self._pending, sink, self._background, now=now, lost=self._lose
        )
        self._pulls = 0
        self._asked = 0
        self._flowing = False
        self._pull_at = -1
        self._elsewhere: deque[tuple[Delivery, tuple[int, int], Outcome]] = deque()
        self._woken = False

    # Being there.

    async def start(self) -> None:
        """Join; raises what keeps the consumer out."""
        self._link.watchers.append(self._on_lost)
        self._link.notices.append(self._on_notice)
        attempts = Attempts(self._plan.timeout)
        while self._connection is None:
            try:
                await self._join()
            except TernError as error:
                await attempts.failed(error)
        self._task = self._background.task(self._stay(), name="tern-subscription")

    async def _join(self) -> None:
        plan = self._plan
        connection = await self._link.get()
        held, asked_at = self._renewal.leases(), self._now()
        joined = await request(
            connection,
            Command.JOIN,
            Join(
                group=plan.group,
                topics=plan.topics,
                start=plan.start,
                held=held,
                tag=plan.tag,
                filter=plan.filter,
                ordered=plan.ordered,
                # Who comes back does not start: others may have said something else meanwhile.
                attempts_max=None if self._number else plan.attempts_max,
                picks=True,
            ),
            Joined,
            timeout=plan.timeout,
        )
        if connection.closed:
            raise Unavailable("the connection was lost while joining")
        self._warn_about_start(joined, again=self._number != 0)
        self._replica_fetch.joined({topic.id: topic.name for topic in joined.topics})
        self._number, self._lease_s = joined.subscription, joined.lease_ms / 1000
        self._lose(set(held) - set(joined.kept))
        self._held.extend(joined.kept, asked_at + self._lease_s)
        self._connection = connection
        self._broker_group = connection.welcome.broker_group
        self._broker_stopping = False
        self._acks.joined(connection, self._number)
        self._away.clear()
        self._flowing = True
        self._renewal.joined(connection, self._number, self._lease_s)
        self._pump()

    def _warn_about_start(self, joined: Joined, *, again: bool) -> None:
        if not self._plan.start_given or again:
            return
        for topic, new in zip(joined.topics, joined.new, strict=True):
            if not new:
                log.warning(
                    "start has no effect: the group was there before",
                    topic=topic.name,
                    group=self._plan.group,
                )

    async def _stay(self) -> None:
        """Come back whenever the connection is lost."""
        attempts = Attempts(link=self._link)
        while True:
            await self._away.wait()
            try:
                await self._join()
                attempts.worked()
            except TernError as error:
                if not error.retryable and not isinstance(error, Closed | ProtocolError):
                    self._sink.failed(error)
                    return
                await attempts.wait()

    def _lost(self) -> None:
        """Called by the link; requests under way fail right after this."""
        if self._connection is not None:
            self._connection = None
            self._acks.away()
            self._renewal.away()
            self._away.set()

    async def stop(self) -> None:
        """Send what is settled, give everything else back, leave."""
        self._stopping = True
        try:
            if self._connection is not None:
                await self.flush()
            else:
                self._settle_elsewhere()
                self._warn_about_unsent()
        except TernError as error:
            log.warning("acks may be lost", group=self._plan.group, reason=str(error))
        try:
            await self._leave()
        except TernError as error:
            log.warning("consumer left without a word", group=self._plan.group, reason=str(error))
        finally:
            self._connection = None
            self._link.watchers.remove(self._on_lost)
            self._link.notices.remove(self._on_notice)
            self._acks.stop()
            self._replica_fetch.stop()
            self._renewal.stop()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    def _warn_about_unsent(self) -> None:
        if rows := self._acks.pending.rows:
            reason = "no connection"
            log.warning("acks may be lost", group=self._plan.group, rows=rows, reason=reason)

    async def _leave(self) -> None:
        connection = self._connection
        if connection is not None:
            leave = Leave(subscription=self._number)
            await request(connection, Command.LEAVE, leave, Empty, timeout=self._plan.timeout)

    # Pulling.

    def rest(self) -> None:
        """Start no more pulls; leases that are held are renewed all the same."""
        self._resting = True

    def follow(self, plan: SubscriptionPlan) -> None:
        """Hold as many rows as the plan says from now on; what is held already stays."""
        self._plan = plan
        self._pump()

    def _pump(self) -> None:
        """Start pulls while there is room for what they bring."""
        prefetch = self._plan.prefetch
        half = (prefetch + 1) // 2
        while True:
            self._pull_at = -1
            connection = self._connection
            if connection is None or self._stopping or self._resting or self._broker_stopping:
                return
            if self._pulls >= (PULLS_MAX if self._flowing else 1):
                return
            self._pull_at = prefetch - half - self._asked
            if self._held.rows > self._pull_at or self._held.size > HELD_SIZE_MAX:
                return
            free = prefetch - self._held.rows - self._asked
            self._pull(connection, half if self._flowing else free)

    def _pull(self, connection: Connection, rows: int) -> None:
        self._pulls += 1
        self._asked += rows
        until = self._now() + self._lease_s
        done = self._acks.take_along()
        pull = Pull(
            subscription=self._number,
            rows_max=rows,
            size_max=PULL_SIZE_MAX,
            wait_ms=min(PULL_WAIT_MS, int(self._lease_s * 1000) // PULL_WAIT_PART),
            done=done,
            cold=self._replica_fetch.wanted,
        )
        try:
            answer = connection.call(Command.PULL, pack(pull))
        except BaseException:
            self._pulls -= 1
            self._asked -= rows
            self._acks.failed(done)
            raise
        pulled = partial(self._pulled, connection, rows, until, done)
        answer.add_done_callback(self._background.callback(pulled))

    def _pulled(
        self,
        connection: Connection,
        rows: int,
        until: float,
        done: list[Done],
        answer: "asyncio.Future[bytearray]",
    ) -> None:
        self._pulls -= 1
        self._asked -= rows
        error = Unavailable("cancelled") if answer.cancelled() else answer.exception()
        if error is not None:
            self._acks.failed(done)
            self._pull_failed(connection, error)
            return
        self._acks.arrived(done)
        if self._stopping:
            return  # The broker takes these rows back when we leave.
        try:
            envelopes = self._complete(connection, rows, until, answer.result())
        except (Corrupt, ProtocolError) as broken:
            self._sink.failed(broken)
            return
        if envelopes is not None:
            self._arrived(connection, envelopes, until)

    def _complete(
        self, connection: Connection, rows: int, until: float, payload: bytearray
    ) -> list[Envelope] | None:
        """What a pull brought; None: it has to wait for bytes, its own or those of one before."""
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a pull is cut off")
        count, left_out, _ = DELIVERED.unpack_from(payload)
        if not left_out and not self._replica_fetch.busy:
            return read_envelopes(payload, count, DELIVERED.size)
        self._pulls += 1
        self._asked += rows
        self._replica_fetch.take(payload, partial(self._completed, connection, rows, until))
        return None

    def _completed(
        self, connection: Connection, rows: int, until: float, whole: Whole | TernError
    ) -> None:
        """The bytes are there, or it is known which are not."""
        self._pulls -= 1
        self._asked -= rows
        if self._stopping or connection is not self._connection:
            return  # The broker takes these rows back: nobody has presented their lease.
        if isinstance(whole, TernError):
            self._sink.failed(whole)
            return
        if whole.missing:
            self._acks.settled(whole.missing, BACK, at_once=True)
        self._arrived(connection, whole.envelopes, until)

    def _arrived(self, connection: Connection, envelopes: list[Envelope], until: float) -> None:
        deliveries = self._read(envelopes, connection.welcome.epoch, until)
        self._flowing = bool(deliveries)
        if deliveries:
            self._sink.arrived(deliveries)
        self._pump()

    def _pull_failed(self, connection: Connection, error: BaseException) -> None:
        if self._stopping or connection.closed or connection is not self._connection:
            return  # `_stay` joins again.
        if isinstance(error, TernError) and not error.retryable:
            self._sink.failed(error)
            return
        self._loop.call_later(back_off(2), self._background.callback(self._pump))

    def _read(self, envelopes: list[Envelope], epoch: int, until: float) -> list[Delivery]:
        found: list[Delivery] = []
        for envelope in envelopes:
            delivery = Delivery(envelope, self, self._plan.codec, epoch, self._broker_group, until)
            self._held.add(delivery)
            try:
                envelope.batch.check()
            except Corrupt as error:
                log.error("a batch arrived damaged", topic=delivery.topic, sequence=delivery.base)
                self.settle(delivery, (0, len(delivery.settled)), retry_outcome(5, str(error)))
                continue
            if delivery.ranges:
                found.append(delivery)
        return found

    def started(self, delivery: Delivery) -> None:
        """Report a row to the broker before the application sees it: it may kill the process."""
        self._renewal.started(delivery)

    # Settling.

    def acked(self, delivery: Delivery, row: int) -> SettleReceipt:
        """One row is handled. The hot path: a few comparisons."""
        settled = delivery.settled
        if settled[row]:
            return self.flushing
        sequence = delivery.base + row
        pending = self._pending
        if delivery.lost or self._at_once or delivery.alone:
            return self.settle(delivery, (row, row + 1), ACK)
        if sequence == pending.end and delivery.lease == pending.lease:
            pending.end = sequence + 1
        else:  # The row before this one failed, or this one comes again.
            self._acks.acked(delivery.lease, sequence)
        settled[row] = 1
        held = self._held
        held.rows -= 1
        delivery.remaining -= 1
        if not delivery.remaining:
            held.finished(delivery)
        if held.rows <= self._pull_at:
            self._pump()
        return self.flushing

    def settle(self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome) -> SettleReceipt:
        """Rows have an outcome; those that had one before keep it."""
        first, end = rows
        sent = [(delivery.lease, delivery.base + first, delivery.base + end)]
        if end - first == 1 and not (delivery.lost or delivery.alone or delivery.settled[first]):
            delivery.settled[first] = 1
            self._held.leave(delivery, 1)
            self._acks.settled_one(delivery.lease, delivery.base + first, outcome)
        else:
            sent = []
            for first, end in delivery.open_ranges(*rows):
                delivery.settled[first:end] = b"\1" * (end - first)
                ranges = self._held.settle(delivery, first, end)
                self._acks.settled(ranges, outcome, at_once=delivery.alone)
                sent += ranges
        if self._held.rows <= self._pull_at:
            self._pump()
        if self._at_once or outcome.kind == "reject":
            return RowsReceipt(self.flush, self._acks, sent)
        return self.flushing

    def settle_later(
        self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome
    ) -> SettleReceipt:
        """Settle from another thread; one wake-up for many calls."""
        self._elsewhere.append((delivery, rows, outcome))
        if not self._woken:
            self._woken = True
            settle = self._background.callback(self._settle_elsewhere)
            self._loop.call_soon_threadsafe(settle)
        return self.flushing

    def _settle_elsewhere(self) -> None:
        self._woken = False
        while self._elsewhere:
            delivery, rows, outcome = self._elsewhere.popleft()
            if outcome is ACK and rows[1] - rows[0] == 1:
                self.acked(delivery, rows[0])
            else:
                self.settle(delivery, rows, outcome)

    async def flush(self) -> None:
        """Wait until the broker has everything that was settled so far."""
        self._settle_elsewhere()
        await self._acks.flush()

    # What becomes of leases.

    def _noticed(self, notice: Notice) -> None:
        """After a reset some leases are gone: find out which before their rows are shown. Before
        a planned stop the broker hears what is settled, and gets back what was not begun."""
        if notice.kind == "leases":
            self._renewal.renew_now()
        elif notice.kind == "stopping" and not self._stopping:
            self._broker_stopping = True
            self._sink.give_back(self)
            self._settle_elsewhere()
            self._acks.send_now()

    def _lose(self, leases: set[int]) -> None:
        """Rows that are no longer ours: show none of them that was not shown yet."""
        for delivery in self._held.lose(leases):
            self._sink.withdraw(delivery)
        if leases:
            log.info("leases lost", group=self._plan.group, leases=len(leases))
            self._pump()
