"""Consumers of HTTP callers: pull gives messages with ack ids, settle takes the ids back.

A caller keeps no connection and this process keeps no message: what is pulled is under a detached
lease at its broker, and an ack id is the handle of one message (`client/consuming/lease_handle`).
So settling works in any console process, and after any of them died. What is kept here are the
consumers: one for each topic and group that is pulled, which leaves its group when nobody has
pulled for a while.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.client.client import Client
from ternmq.client.consuming.detached_consumer import DetachedConsumer, DetachedMessage
from ternmq.core.clock import Clock
from ternmq.core.errors import OverLimit, TernError
from ternmq.core.log import get_logger

MAX_ROWS = 1_000
WAIT_MS_MAX = 30_000
LEASE_MS_MAX = 12 * 3_600_000
CONSUMERS_MAX = 200
IDLE_S = 20.0

log = get_logger()


class HttpConsumer:
    """One group on one topic: who pulls from it now, and since when nobody does."""

    def __init__(self, consumer: DetachedConsumer, clock: Clock) -> None:
        self.consumer = consumer
        self._clock = clock
        self._pulls = 0
        self._used_at = clock.monotonic()

    @property
    def idle(self) -> bool:
        return not self._pulls and self._clock.monotonic() - self._used_at > IDLE_S

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[DetachedConsumer]:
        self._pulls += 1
        try:
            yield self.consumer
        finally:
            self._pulls -= 1
            self._used_at = self._clock.monotonic()


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
        """The consumer of a group; it joins with the first pull."""
        async with self._opening:
            found = self._open.get((topic, group))
            if found is not None:
                return found
            if len(self._open) >= CONSUMERS_MAX:
                raise OverLimit(f"{CONSUMERS_MAX} groups are consumed by HTTP here already")
            await self._mq.admin.topic(topic)  # A misspelt one is an error, not a new topic.
            made = HttpConsumer(self.by_handle(topic, group), self._clock)
            self._open[topic, group] = made
            return made

    async def pull(
        self, topic: str, group: str, *, rows: int, wait_ms: int, lease_ms: int
    ) -> list[DetachedMessage]:
        """Messages with their ack ids; a consumer that failed is let go."""
        consumer = await self.get(topic, group)
        try:
            async with consumer.in_use() as pulled:
                return await pulled.pull(rows, wait=wait_ms / 1000, lease=lease_ms / 1000)
        except OverLimit:
            raise
        except TernError:
            if self._open.get((topic, group)) is consumer:
                del self._open[topic, group]
                await consumer.consumer.close()
            raise

    def by_handle(self, topic: str, group: str) -> DetachedConsumer:
        """For settling and extending, which need no pull here before."""
        return self._mq.detached_consumer(topic, group=group)

    async def run(self) -> None:
        """Let go of consumers that nobody uses."""
        while True:
            await asyncio.sleep(0.5)
            for key, consumer in list(self._open.items()):
                if consumer.idle:
                    del self._open[key]
                    try:
                        await consumer.consumer.close()
                    except TernError as error:
                        log.warning("an HTTP consumer failed", group=key[1], reason=error.message)

    async def close(self) -> None:
        for consumer in self._open.values():
            await consumer.consumer.close()
        self._open.clear()
