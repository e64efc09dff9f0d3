"""The consumer: gets deliveries from every broker group, returns messages or batches.

    async with mq.consumer("order.paid", group="billing") as consumer:
        async for message in consumer:
            message.ack()

Showing a message that has arrived takes no await that suspends, so the loop is given a turn at
least every few hundred messages. Several tasks may iterate over one consumer; each message is
shown once. Leaving tells the brokers what is settled and gives the rest back at once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from ternmq.client.consuming.clock_pace import ClockPace
from ternmq.client.consuming.subscription_plan import SubscriptionPlan, checked_prefetch
from ternmq.client.consuming.subscriptions import Subscriptions
from ternmq.client.model.arguments import check_value
from ternmq.client.model.delivery import BACK, Delivery, Outcome, reject_outcome
from ternmq.client.model.durations import Duration, seconds_of, typed
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.sealing.decryption import closed_outcome, unreadable_runs
from ternmq.client.tracing import TRACING
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fork import life
from ternmq.core.clock import elapsed
from ternmq.core.errors import BadRequest, Closed, Corrupt, Erased, TernError
from ternmq.core.log import get_logger

log = get_logger()

TURN_ROWS = 256  # Rows shown before the loop gets a turn: a pull that was started goes out then.
BATCH_ROWS = 4096
WAIT_MAX_S = 24 * 3600.0
NOT_STARTED = "this consumer is not started: use it in 'async with' ('with' in ternmq.sync)"


class Consumer:
    """One consumer of a group. Use it in `async with`, or `start` and `close` it."""

    def __init__(
        self, cluster: Cluster, plan: SubscriptionPlan, now: Callable[[], float] = elapsed
    ) -> None:
        """`now`: the clock of leases."""
        self._plan = plan
        self._life = life.number
        self.now = now
        self._keyring = cluster.keyring
        self._subscriptions = Subscriptions(cluster, plan, self, now)
        self._pace = ClockPace(ordered=plan.ordered)
        self._ready: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._error: TernError | None = None
        self._watchers: list[Callable[[Delivery], None]] = []
        self._state = "new"
        self._resting = False
        # What is being shown: rows `_row` up to `_row_end` of `_delivery`, then `_ranges`.
        self._delivery: Delivery = None  # type: ignore[assignment]
        self._ranges: list[tuple[int, int]] = []
        self._row = self._row_end = 0
        self._shown = 0
        self._erased = 0

    @property
    def group(self) -> str:
        return self._plan.group

    @property
    def topics(self) -> list[str]:
        return list(self._plan.topics)

    @property
    def ordered(self) -> bool:
        return self._plan.ordered

    @property
    def closed(self) -> bool:
        return self._state == "closed"

    @property
    def erased(self) -> int:
        """Messages so far that were acked unseen, since their keys were deleted."""
        return self._erased

    def set_prefetch(self, prefetch: int) -> None:
        """Hold so many messages at most from now on, of each broker group; those in hand stay."""
        self._subscriptions.set_prefetch(checked_prefetch(prefetch))

    # Coming and going.

    async def start(self) -> "Consumer":
        """Join the group at every broker group; raises what keeps it out."""
        if self._state != "new":
            raise Closed("a consumer is started once; make a new one")
        self._state = "open"
        try:
            await self._subscriptions.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Stop pulling, send what is settled, give the rest back."""
        if self._state == "closed":
            return
        self._state = "closed"
        self._wake_all()
        if self._life == life.number:
            await self._subscriptions.stop()
        self._ready.clear()
        self._ranges, self._row, self._row_end = [], 0, 0

    def stop_pulling(self) -> None:
        """Ask for no more, and give back at once what was not shown yet; iterating ends."""
        self._resting = True
        self._subscriptions.rest()
        for subscription in self._subscriptions:
            self.give_back(subscription)
        self._wake_all()

    def give_back(self, source: object) -> None:
        """What one broker sent and was not shown yet goes back to it, and is not shown."""
        delivery = self._delivery
        if delivery is not None and delivery.source is source:
            unshown = [*self._ranges, (self._row, self._row_end)]
            self._ranges, self._row = [], self._row_end
            for first, end in unshown:
                if first < end:
                    delivery.source.settle(delivery, (first, end), BACK)
        ready = [each for each in self._ready if each.source is source]
        self._ready = deque(each for each in self._ready if each.source is not source)
        _give_back(_parts_of(ready))

    async def __aenter__(self) -> "Consumer":
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def flush(self) -> None:
        """Wait until the brokers have everything that was settled so far."""
        self._check()
        await asyncio.gather(*(each.flush() for each in self._subscriptions))

    # Showing.

    def __aiter__(self) -> "Consumer":
        self._check()
        return self

    async def __anext__(self) -> Message:
        row = self._row
        if row == self._row_end:
            if self._shown >= TURN_ROWS or not self._advance(paced=True):
                await self._next_range(paced=True)
            row = self._row
        self._row = row + 1
        return Message(self._delivery, row)

    def batches(self, rows_max: int = BATCH_ROWS) -> AsyncIterator[MessageBatch]:
        """Messages in batches of one topic, as they arrive; about `rows_max` at most."""
        self._check()
        return _Batches(self, rows_max)

    async def next_batch(
        self, rows_max: int = BATCH_ROWS, *, wait: Duration = 0.0, exact: bool = False
    ) -> MessageBatch | None:
        """The next batch; None once the consumer is closed.

        `wait`: seconds to gather for, counted from the first message. `exact`: never more than
        `rows_max`; else a stored batch that begins within it is not cut.
        """
        self._check_life()
        if self._state == "new":
            raise Closed(NOT_STARTED)
        _check_rows_max(rows_max)
        check_value("exact", exact, bool)
        wait = seconds_of("wait", wait, 0, WAIT_MAX_S)
        parts: list[tuple[Delivery, int, int]] = []
        while not parts:
            try:
                if self._row == self._row_end:
                    await self._next_range()
            except StopAsyncIteration:
                return None
            left = self._take_parts(parts, rows_max, exact)
            if wait > 0 and left > 0:
                try:
                    await self._gather(parts, left, wait, exact)
                except asyncio.CancelledError:
                    _give_back(parts)  # Nobody will see them here.
                    raise
                now = self.now()
                _give_back([part for part in parts if part[0].until <= now])
                parts = [part for part in parts if part[0].until > now]
        return MessageBatch(parts)

    async def _gather(
        self, parts: list[tuple[Delivery, int, int]], left: int, wait: float, exact: bool
    ) -> None:
        """Wait for more of the same topic, until it is enough, time is up, or others come."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + wait
        while left > 0 and self._row == self._row_end and not self._ranges and not self._ready:
            if self._state == "closed" or self._resting or self._error is not None:
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=give_up - loop.time())
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if not waiter.done():
                return
            left = self._take_parts(parts, left, exact)

    def _take_parts(
        self, parts: list[tuple[Delivery, int, int]], rows_max: int, exact: bool
    ) -> int:
        """Move what is there into `parts`, all of one topic; return how many more would fit."""
        left = rows_max
        like = parts[-1][0] if parts else None
        while left > 0:
            if self._row == self._row_end:
                if like is None or (self._ranges and not _alike(like, self._delivery)):
                    break
                if not self._advance(like.topic, like.source):
                    break
            elif like is not None and not _alike(like, self._delivery):
                break
            like = self._delivery
            end = min(self._row_end, self._row + left) if exact else self._row_end
            if like.until > self.now():
                parts.append((like, self._row, end))
            else:
                _give_back([(like, self._row, end)])
            left -= end - self._row
            self._row = end
        return left

    async def _next_range(self, *, paced: bool = False) -> None:
        """Make `_row` < `_row_end`, waiting for a delivery if need be."""
        while True:
            if self._shown >= TURN_ROWS:
                self._shown = 0
                await asyncio.sleep(0)
            if self._row < self._row_end or self._advance(paced=paced):
                return
            self._check_life()
            if self._error is not None:
                raise self._error
            if self._state == "closed" or self._resting:
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter in self._waiters:  # Else everybody was woken in the same moment.
                    self._waiters.remove(waiter)
                raise
            self._shown = 0

    def _advance(
        self, topic: str | None = None, source: object = None, *, paced: bool = False
    ) -> bool:
        """Go on to the next range that is there; of this topic and source, if they matter.
        `paced`: to as many rows as may be shown before the clock is looked at again."""
        while True:
            fresh = not self._ranges
            if fresh:
                if not self._ready or self._state == "closed":
                    return False
                following = self._ready[0]
                if topic is not None and not (
                    following.topic == topic and following.source is source
                ):
                    return False
                if following.batch.sealed and not self._keyring.ready(
                    following.batch, self._wake_all
                ):
                    return False
                self._delivery = self._ready.popleft()
                self._ranges = list(reversed(self._delivery.ranges))
            now = self.now()
            if self._delivery.until <= now:
                self._let_go()
            elif not fresh or (self._readable() and self._ranges):
                break
        if fresh and self._delivery.alone:
            self._delivery.source.started(self._delivery)
        row, end = self._ranges.pop()
        if paced and end - row > 1:
            paced_end = row + self._pace.rows(now)
            if paced_end < end:
                self._ranges.append((paced_end, end))
                end = paced_end
        self._row, self._row_end = row, end
        self._shown += end - row
        return True

    def _readable(self) -> bool:
        """Bodies that do not decompress were never messages: a handler could not even retry them,
        so they are dead at once, where a person can look at them."""
        try:
            self._delivery.batch.open_bodies()
        except Corrupt as error:
            delivery, ranges, self._ranges = self._delivery, self._ranges, []
            outcome = reject_outcome(f"its body cannot be read: {error.message}")
            _give_back([(delivery, first, end) for first, end in ranges], outcome)
            log.error(
                "messages with bodies that cannot be read are dead letters now",
                group=self._plan.group,
                topic=delivery.topic,
                reason=error.message,
                messages=sum(end - first for first, end in ranges),
            )
            return False
        if self._delivery.batch.sealed:
            self._open_sealed()
        return True

    def _open_sealed(self) -> None:
        """Show what can be read. What was erased is passed over: acked, for there is nothing left
        to do. What lacks its key comes again by the group's policy, and ends as a dead letter that
        can be sent again when the key is there. What was tampered with is a dead letter at once."""
        delivery, ranges = self._delivery, list(reversed(self._ranges))
        self._keyring.open(delivery.batch, ranges)
        self._ranges = []
        hidden: dict[str, int] = {}
        for (first, end), why in unreadable_runs(delivery.batch, ranges):
            if why is None:
                self._ranges.insert(0, (first, end))
            else:
                _give_back([(delivery, first, end)], closed_outcome(why))
                self._erased += end - first if isinstance(why, Erased) else 0
                hidden[why.message] = hidden.get(why.message, 0) + end - first
        if hidden:
            log.warning(
                "encrypted messages are not shown",
                group=self._plan.group,
                topic=delivery.topic,
                messages=sum(hidden.values()),
                reason=next(iter(hidden)),
            )

    def _let_go(self) -> None:
        """The lease is over, by our own clock: another consumer may be at these rows."""
        delivery, ranges, self._ranges = self._delivery, self._ranges, []
        _give_back([(delivery, first, end) for first, end in ranges])
        log.info(
            "a lease ran out here: messages not begun are given back",
            group=self._plan.group,
            topic=delivery.topic,
            messages=sum(end - first for first, end in ranges),
        )

    # What subscriptions call.

    def arrived(self, deliveries: list[Delivery]) -> None:
        if self._resting:
            _give_back(_parts_of(deliveries))
            return
        if TRACING.tracer is not None:
            TRACING.tracer.received(self._plan.group, deliveries)
        self._ready.extend(deliveries)
        self._wake_all()

    def unshown(self, delivery: Delivery) -> list[tuple[int, int]]:
        if delivery is self._delivery:
            return [*self._ranges, (self._row, self._row_end)]
        return delivery.ranges if delivery in self._ready else []

    def watch(self, withdrawn: Callable[[Delivery], None]) -> None:
        """Call this when rows are lost that a batch may hold and that were not shown
        (`ternmq.sync`)."""
        self._watchers.append(withdrawn)

    def withdraw(self, delivery: Delivery) -> None:
        """The lease is lost: rows that were not shown are not shown any more."""
        for withdrawn in self._watchers:
            withdrawn(delivery)
        unshown = self.unshown(delivery)
        if delivery in self._ready:
            self._ready.remove(delivery)
        elif delivery is self._delivery:
            self._ranges, self._row = [], self._row_end
        for first, end in unshown:
            delivery.settled[first:end] = b"\1" * (end - first)

    def failed(self, error: TernError) -> None:
        self._error = error
        self._wake_all()

    def _wake_all(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _check(self) -> None:
        self._check_life()
        if self._state != "open":
            raise Closed(NOT_STARTED if self._state == "new" else "this consumer is closed")

    def _check_life(self) -> None:
        if self._life != life.number:
            raise Closed("this consumer belongs to the parent process; make one after the fork")


class _Batches:
    """Iterates over a consumer batch by batch."""

    def __init__(self, consumer: Consumer, rows_max: int) -> None:
        _check_rows_max(rows_max)
        self._consumer = consumer
        self._rows_max = rows_max

    def __aiter__(self) -> "_Batches":
        return self

    async def __anext__(self) -> MessageBatch:
        batch = await self._consumer.next_batch(self._rows_max)
        if batch is None:
            raise StopAsyncIteration
        return batch


def _parts_of(deliveries: list[Delivery]) -> list[tuple[Delivery, int, int]]:
    return [(delivery, first, end) for delivery in deliveries for first, end in delivery.ranges]


def _give_back(parts: list[tuple[Delivery, int, int]], outcome: Outcome = BACK) -> None:
    for delivery, first, end in parts:
        delivery.source.settle(delivery, (first, end), outcome)


def _check_rows_max(rows_max: object) -> None:
    if isinstance(rows_max, bool) or not isinstance(rows_max, int) or rows_max < 1:
        raise BadRequest(f"rows_max is {typed(rows_max)}; it is a whole number, at least 1")


def _alike(one: Delivery, other: Delivery) -> bool:
    """May their messages be shown in one batch?"""
    return one.topic == other.topic and one.source is other.source
