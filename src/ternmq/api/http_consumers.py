"""Consumers of HTTP callers: pull gives messages with ack ids, settle takes the ids back.

A caller keeps no connection, so this process holds one consumer for each topic and group that is
pulled, and every message that was pulled and not settled until its lease is over. Then the message
goes back to the group as a failed attempt, as if a consumer had died with it. A consumer that
nobody pulled from for a while, and that holds nothing, leaves its group. An ack id that is not
known (any more) is counted as late: its message will come again.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from ternmq.client.client import Client
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, OverLimit, TernError
from ternmq.core.log import get_logger

MAX_ROWS = 1_000
WAIT_MS_MAX = 30_000
LEASE_MS_MAX = 12 * 3_600_000
HELD_MAX = 100_000
CONSUMERS_MAX = 200
IDLE_S = 20.0
EXPIRED = "the lease of an HTTP consumer ran out"

log = get_logger()


@dataclass(slots=True, kw_only=True)
class HeldByCaller:
    """A message that a caller has."""

    message: Message
    until: float


@dataclass(slots=True, kw_only=True)
class SettleOrder:
    """What a caller says about one message."""

    ack_id: str
    outcome: str
    """ack, retry, reject or extend."""
    after_ms: int | None = None
    error: str = ""
    lease_ms: int = 60_000


class HttpConsumer:
    """One group on one topic."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._prefix = secrets.token_urlsafe(9)
        self._held: dict[str, HeldByCaller] = {}
        self._count = 0
        self._pulls = 0
        self._used_at = clock.monotonic()

    @property
    def idle(self) -> bool:
        unused = self._clock.monotonic() - self._used_at > IDLE_S
        return unused and not self._held and not self._pulls

    async def start(self) -> None:
        await self._consumer.start()

    async def close(self) -> None:
        """Give back what callers hold, and leave."""
        for held in self._held.values():
            if not held.message.settled:
                held.message.release()
        self._held.clear()
        await self._consumer.close()

    async def pull(self, rows: int, wait_ms: int, lease_ms: int) -> list[tuple[str, Message]]:
        """Up to so many, with their ack ids; nothing if none came in time."""
        if len(self._held) + rows > HELD_MAX:
            raise OverLimit(f"{len(self._held)} pulled messages are not settled: settle some first")
        self._pulls += 1
        try:
            async with asyncio.timeout(max(wait_ms, 1) / 1000):
                batch = await self._consumer.next_batch(rows, exact=True)
        except TimeoutError:
            batch = None
        finally:
            self._pulls -= 1
            self._used_at = self._clock.monotonic()
        return self._hold(batch, lease_ms) if batch is not None else []

    def _hold(self, batch: MessageBatch, lease_ms: int) -> list[tuple[str, Message]]:
        until = self._clock.monotonic() + lease_ms / 1000
        found: list[tuple[str, Message]] = []
        for message in batch:
            self._count += 1
            ack_id = f"{self._prefix}.{self._count}"
            self._held[ack_id] = HeldByCaller(message=message, until=until)
            found.append((ack_id, message))
        return found

    async def settle(self, orders: Sequence[SettleOrder]) -> tuple[int, int]:
        """How many counted, and how many came too late."""
        self._used_at = now = self._clock.monotonic()
        late = 0
        for order in orders:
            held = self._held.get(order.ack_id)
            if held is None or held.message.settled:
                self._held.pop(order.ack_id, None)
                late += 1
            elif order.outcome == "extend":
                held.until = now + order.lease_ms / 1000
            else:
                del self._held[order.ack_id]
                _settle(held.message, order)
        await self._consumer.flush()
        return len(orders) - late, late

    def expire(self) -> None:
        """What was not settled in time comes again."""
        now = self._clock.monotonic()
        for ack_id in [ack_id for ack_id, held in self._held.items() if held.until <= now]:
            message = self._held.pop(ack_id).message
            if not message.settled:
                message.retry(after=0, reason=EXPIRED)


def _settle(message: Message, order: SettleOrder) -> None:
    if order.outcome == "ack":
        message.ack()
    elif order.outcome == "retry":
        after = None if order.after_ms is None else order.after_ms / 1000
        message.retry(after=after, reason=order.error)
    else:
        message.reject(reason=order.error)


class HttpConsumers:
    """All consumers of one console process."""

    def __init__(self, mq: Client, clock: Clock) -> None:
        self._mq = mq
        self._clock = clock
        self._open: dict[tuple[str, str], HttpConsumer] = {}
        self._opening = asyncio.Lock()

    @property
    def busy(self) -> bool:
        """Some group is consumed by HTTP callers now."""
        return bool(self._open)

    async def get(self, topic: str, group: str) -> HttpConsumer:
        """The consumer of a group; joins it if this process did not yet."""
        async with self._opening:
            found = self._open.get((topic, group))
            if found is not None:
                return found
            if len(self._open) >= CONSUMERS_MAX:
                raise OverLimit(f"{CONSUMERS_MAX} groups are consumed by HTTP here already")
            await self._mq.admin.topic(topic)  # A misspelt one is an error, not a new topic.
            made = HttpConsumer(
                self._mq.consumer(topic, group=group, prefetch=MAX_ROWS), self._clock
            )
            await made.start()
            self._open[topic, group] = made
            return made

    async def pull(
        self, topic: str, group: str, *, rows: int, wait_ms: int, lease_ms: int
    ) -> list[tuple[str, Message]]:
        """Messages with their ack ids; a consumer that failed is let go."""
        consumer = await self.get(topic, group)
        try:
            return await consumer.pull(rows, wait_ms, lease_ms)
        except OverLimit:
            raise
        except TernError:
            if self._open.pop((topic, group), None) is not None:
                await consumer.close()
            raise

    def known(self, topic: str, group: str) -> HttpConsumer:
        """For settling: without a pull before there is nothing to settle."""
        found = self._open.get((topic, group))
        if found is None:
            raise BadRequest(
                f"nothing of group {group!r} on {topic!r} was pulled here (lately): what you hold "
                "comes again; pull first"
            )
        return found

    async def run(self) -> None:
        """Look after leases, and let go of consumers that nobody uses."""
        while True:
            await asyncio.sleep(0.5)
            for key, consumer in list(self._open.items()):
                try:
                    consumer.expire()
                    if consumer.idle:
                        del self._open[key]
                        await consumer.close()
                except TernError as error:
                    log.warning("an HTTP consumer failed", group=key[1], reason=error.message)

    async def close(self) -> None:
        for consumer in self._open.values():
            await consumer.close()
        self._open.clear()
