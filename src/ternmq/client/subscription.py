"""One consumer at one broker group: joins, pulls, settles, renews, comes back after a lost link.

1. At most two pulls are under way, and new ones are started only while half of `prefetch` is free,
   so a slow handler holds a bounded number of rows. A pull waits at the broker until there is
   something.
2. Acks ride on the next pull, or go alone after at most 200 ms; retries and rejections, which the
   broker makes durable before it answers, always go alone. All are kept until answered and told
   again after a lost connection: hearing them twice does no harm.
3. Leases are renewed while rows of them are held. After a reconnect the client presents what it
   holds; rows of leases that are gone and not yet shown to the application are dropped, and rows
   it has in hand are not shown a second time when they are delivered again (D5).

Belongs to one event loop; only `settle_later` may be called from other threads.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any, Protocol

import structlog

from ternmq.batch.envelope import read_envelopes
from ternmq.client.codec import Codec
from ternmq.client.delivery import ACK, Delivery, Verdict, retry_verdict
from ternmq.client.dones import Dones
from ternmq.client.holding import Holding
from ternmq.client.link import Link, back_off
from ternmq.core.errors import Closed, Corrupt, ProtocolError, TernError, Unavailable
from ternmq.core.units import MIB
from ternmq.rpc.connection import Connection, request
from ternmq.wire.commands import (
    DELIVERED,
    Ack,
    Command,
    Done,
    Empty,
    Join,
    Joined,
    Leave,
    Pull,
    Renew,
    Renewed,
    Start,
    pack,
    unpack,
)

PULLS_MAX = 2
PULL_SIZE_MAX = 2 * MIB
PULL_WAIT_MS = 10_000
ACK_DELAY_S = 0.2
URGENT_DELAY_S = 0.005
ACK_ENTRIES_MAX = 512  # Ranges that wait; beyond, they are sent without waiting for a pull.
HELD_SIZE_MAX = 64 * MIB

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a consumer wants."""

    group: str
    topics: list[str]
    start: Start
    start_given: bool
    prefetch: int
    codec: Codec | None
    timeout: float
    """Seconds for one request."""


class Sink(Protocol):
    """Where deliveries go."""

    def arrived(self, deliveries: list[Delivery]) -> None: ...

    def withdraw(self, delivery: Delivery) -> None:
        """Do not show what was not shown yet; mark those rows settled."""

    def failed(self, error: TernError) -> None: ...


class Flushing:
    """Awaiting this sends what is settled and waits until the broker has it."""

    __slots__ = ("_subscription",)

    def __init__(self, subscription: "Subscription") -> None:
        self._subscription = subscription

    def __await__(self) -> Generator[Any, None, None]:
        return self._subscription.flush().__await__()


class Subscription:
    """The part of a consumer that one broker group knows."""

    def __init__(self, link: Link, plan: Plan, sink: Sink) -> None:
        self._link = link
        self._plan = plan
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.flushing = Flushing(self)
        self._connection: Connection | None = None
        """Joined on it; None while away."""
        self._number = 0
        self._lease_s = 60.0
        self._back: asyncio.Event = asyncio.Event()
        self._away: asyncio.Event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._dones = Dones()
        self._holding = Holding()
        self._pulls = 0
        self._asked = 0
        self._flowing = False
        self._pull_at = -1
        self._riding = 0
        """Pulls under way that took acks along."""
        self._telling: set[asyncio.Future[bytearray]] = set()
        self._ack_timer: asyncio.TimerHandle | None = None
        self._urgent_timer: asyncio.TimerHandle | None = None
        self._renew_timer: asyncio.TimerHandle | None = None
        self._elsewhere: deque[tuple[Delivery, tuple[int, int], Verdict]] = deque()
        self._woken = False

    # Being there.

    async def start(self) -> None:
        """Join; raises what keeps the consumer out."""
        self._link.watchers.append(self._lost)
        await self._join()
        self._task = self._loop.create_task(self._stay(), name="tern-subscription")

    async def _join(self) -> None:
        plan = self._plan
        connection = await self._link.get()
        held = self._holding.leases()
        joined = await request(
            connection,
            Command.JOIN,
            Join(group=plan.group, topics=plan.topics, start=plan.start, held=held),
            Joined,
            timeout=plan.timeout,
        )
        if connection.closed:
            raise Unavailable("the connection was lost while joining")
        self._warn_about_start(joined, again=self._number != 0)
        self._number, self._lease_s = joined.subscription, joined.lease_ms / 1000
        self._lose(set(held) - set(joined.kept))
        self._connection = connection
        self._back.set()
        self._away.clear()
        self._flowing = True
        if self._renew_timer is None:
            self._renew_timer = self._loop.call_later(self._lease_s / 3, self._renew)
        self._pump()
        if self._dones:
            self._ack_soon()

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
        failures = 0
        while True:
            await self._away.wait()
            try:
                await self._join()
                failures = 0
            except TernError as error:
                if not error.retryable and not isinstance(error, Closed | ProtocolError):
                    self._sink.failed(error)
                    return
                failures += 1
                await asyncio.sleep(back_off(failures))

    def _lost(self) -> None:
        """Called by the link; requests under way fail right after this."""
        if self._connection is not None:
            self._connection = None
            self._back.clear()
            self._away.set()

    async def stop(self) -> None:
        """Tell what is settled, give everything else back, leave."""
        self._stopping = True
        try:
            if self._connection is not None:
                async with asyncio.timeout(self._plan.timeout):
                    await self.flush()
                    if self._connection is not None:
                        leave = Leave(subscription=self._number)
                        await request(
                            self._connection,
                            Command.LEAVE,
                            leave,
                            Empty,
                            timeout=self._plan.timeout,
                        )
        except (TernError, TimeoutError) as error:
            log.warning("consumer left without a word", group=self._plan.group, reason=str(error))
        finally:
            self._connection = None
            self._link.watchers.remove(self._lost)
            for timer in (self._ack_timer, self._urgent_timer, self._renew_timer):
                if timer is not None:
                    timer.cancel()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task])

    # Pulling.

    def _pump(self) -> None:
        """Start pulls while there is room for what they bring."""
        prefetch = self._plan.prefetch
        half = (prefetch + 1) // 2
        while True:
            self._pull_at = -1
            connection = self._connection
            if connection is None or self._stopping:
                return
            if self._pulls >= (PULLS_MAX if self._flowing else 1):
                return
            self._pull_at = prefetch - half - self._asked
            if self._holding.rows > self._pull_at or self._holding.size > HELD_SIZE_MAX:
                return
            free = prefetch - self._holding.rows - self._asked
            self._pull(connection, half if self._flowing else free)

    def _pull(self, connection: Connection, rows: int) -> None:
        self._pulls += 1
        self._asked += rows
        done = self._dones.take_acks()
        self._riding += bool(done)
        pull = Pull(
            subscription=self._number,
            rows_max=rows,
            size_max=PULL_SIZE_MAX,
            wait_ms=PULL_WAIT_MS,
            done=done,
        )
        answer = connection.call(Command.PULL, pack(pull))
        answer.add_done_callback(partial(self._pulled, connection, rows, done))

    def _pulled(
        self,
        connection: Connection,
        rows: int,
        done: list[Done],
        answer: "asyncio.Future[bytearray]",
    ) -> None:
        self._pulls -= 1
        self._asked -= rows
        self._riding -= bool(done)
        error = None if answer.cancelled() else answer.exception()
        if self._stopping:
            self._dones.put_back(done if error is not None else [])
            return
        if error is not None or answer.cancelled():
            self._pull_failed(connection, done, error)
            return
        try:
            deliveries = self._read(answer.result())
        except (Corrupt, ProtocolError) as broken:
            self._sink.failed(broken)
            return
        self._flowing = bool(deliveries)
        if deliveries:
            self._sink.arrived(deliveries)
        self._pump()

    def _pull_failed(
        self, connection: Connection, done: list[Done], error: BaseException | None
    ) -> None:
        self._dones.put_back(done)
        if connection.closed or connection is not self._connection:
            return  # `_stay` joins again.
        if isinstance(error, TernError) and not error.retryable:
            self._sink.failed(error)
            return
        self._loop.call_later(back_off(2), self._pump)

    def _read(self, payload: bytearray) -> list[Delivery]:
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a pull is cut off")
        count, _, _ = DELIVERED.unpack_from(payload)
        found: list[Delivery] = []
        for envelope in read_envelopes(payload, count, DELIVERED.size):
            delivery = Delivery(envelope, self, self._plan.codec)
            self._holding.add(delivery)
            try:
                envelope.batch.check()
            except Corrupt as error:
                log.error("a batch arrived damaged", topic=delivery.topic, sequence=delivery.base)
                self.settle(delivery, (0, envelope.batch.count), retry_verdict(5, str(error)))
                continue
            if delivery.ranges:
                found.append(delivery)
        return found

    # Settling.

    def acked(self, delivery: Delivery, row: int) -> None:
        """One row is handled. The hot path: a few comparisons."""
        settled = delivery.settled
        if settled[row]:
            return
        sequence = delivery.base + row
        dones = self._dones
        if sequence != dones.end or delivery.lease != dones.lease or delivery.lost:
            self.settle(delivery, (row, row + 1), ACK)
            return
        dones.end = sequence + 1
        settled[row] = 1
        holding = self._holding
        holding.rows -= 1
        delivery.remaining -= 1
        if not delivery.remaining:
            holding.finished(delivery)
        if holding.rows <= self._pull_at:
            self._pump()

    def settle(self, delivery: Delivery, rows: tuple[int, int], verdict: Verdict) -> None:
        """Rows have a verdict; those that had one before keep it."""
        dones, holding = self._dones, self._holding
        for first, end in delivery.open_ranges(*rows):
            delivery.settled[first:end] = b"\1" * (end - first)
            for lease, first_sequence, end_sequence in holding.settle(delivery, first, end):
                dones.add(lease, first_sequence, end_sequence, verdict)
        if holding.rows <= self._pull_at:
            self._pump()
        if dones:
            self._ack_soon()

    def settle_later(self, delivery: Delivery, rows: tuple[int, int], verdict: Verdict) -> None:
        """The same from another thread; one wake-up for many calls."""
        self._elsewhere.append((delivery, rows, verdict))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._settle_elsewhere)

    def _settle_elsewhere(self) -> None:
        self._woken = False
        while self._elsewhere:
            delivery, rows, verdict = self._elsewhere.popleft()
            if verdict is ACK and rows[1] - rows[0] == 1:
                self.acked(delivery, rows[0])
            else:
                self.settle(delivery, rows, verdict)

    def _ack_soon(self) -> None:
        dones = self._dones
        if dones.urgent or len(dones) > ACK_ENTRIES_MAX:
            if self._urgent_timer is None:
                self._urgent_timer = self._loop.call_later(URGENT_DELAY_S, self._ack_now)
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_DELAY_S, self._ack_now)

    def _ack_now(self) -> None:
        for timer in (self._ack_timer, self._urgent_timer):
            if timer is not None:
                timer.cancel()
        self._ack_timer = self._urgent_timer = None
        if self._dones:  # Else a pull took them along.
            self._tell()

    def _tell(self) -> None:
        """Send what is settled, if only to hear that what rode on pulls has arrived."""
        connection = self._connection
        if connection is None or connection.closed:
            return  # Told after the reconnect.
        done = self._dones.take()
        answer = connection.call(Command.ACK, pack(Ack(subscription=self._number, done=done)))
        self._telling.add(answer)
        answer.add_done_callback(partial(self._told, connection, done))

    def _told(
        self, connection: Connection, done: list[Done], answer: "asyncio.Future[bytearray]"
    ) -> None:
        self._telling.discard(answer)
        error = None if answer.cancelled() else answer.exception()
        if error is None:
            return
        if connection.closed or (isinstance(error, TernError) and error.retryable):
            self._dones.put_back(done)
            if not connection.closed and self._dones and not self._stopping:
                self._loop.call_later(1.0, self._ack_now)
            return
        log.error("settled rows were refused", group=self._plan.group, reason=str(error))

    async def flush(self) -> None:
        """Send what is settled and wait until the broker has it."""
        self._settle_elsewhere()
        try:
            async with asyncio.timeout(self._plan.timeout):
                while self._dones or self._riding or self._telling:
                    if self._connection is None:
                        await self._back.wait()
                    if self._dones or self._riding:
                        self._tell()
                    await self._all_told()
                    if self._riding and not self._dones:
                        return  # Frames are handled in order: the acks on pulls came first.
        except TimeoutError as error:
            raise Unavailable(
                f"the broker did not confirm within {self._plan.timeout:g} s; it is told again "
                "when it is back"
            ) from error

    async def _all_told(self) -> None:
        """Wait for the answers under way; raises what the broker refused."""
        connection = self._connection
        for answer in list(self._telling):
            try:
                await asyncio.shield(answer)
            except TernError:
                if connection is not None and not connection.closed:
                    raise

    # Keeping.

    def _renew(self) -> None:
        self._renew_timer = self._loop.call_later(self._lease_s / 3, self._renew)
        leases = self._holding.leases()
        connection = self._connection
        if not leases or connection is None:
            return
        renew = Renew(subscription=self._number, leases=leases)
        connection.call(Command.RENEW, pack(renew)).add_done_callback(self._renewed)

    def _renewed(self, answer: "asyncio.Future[bytearray]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # Lost connections are handled by `_stay`; leases last for two more tries.
        self._lose(set(unpack(answer.result(), Renewed).lost))

    def _lose(self, leases: set[int]) -> None:
        """These rows are no longer ours: show none of them that was not shown yet."""
        for delivery in self._holding.lose(leases):
            self._sink.withdraw(delivery)
        if leases:
            log.info("leases lost", group=self._plan.group, leases=len(leases))
            self._pump()
