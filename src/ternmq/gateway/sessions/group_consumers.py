"""One consumer of this process for each topic, group and filter that clients ask for.

It pulls exactly what open polls wait for, so nothing lies here that another consumer could have,
and it takes part like any other: a TernMQ client may be in the same group at the same time. It
leaves when nobody has polled for a while and nobody holds anything of it.
"""

import asyncio
from dataclasses import dataclass

from ternmq.client.client import Client
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.model.message import Message
from ternmq.client.model.start import StartLike
from ternmq.core.clock import Clock
from ternmq.core.errors import LeaseLost, OverLimit, TernError
from ternmq.core.log import get_logger
from ternmq.gateway.sessions.handed_out import HandedOut, Holdings

CONSUMERS_MAX = 5_000
POLLS_MAX = 2_000
"""That wait at one consumer."""
IDLE_S = 20.0
LOOK_S = 0.2

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What a consumer of this process takes part in."""

    topic: str
    group: str
    tag: str = ""
    filter: str = ""
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """One request for messages."""

    client_id: str
    rows: int
    wait_s: float
    invisible_ms: int
    push: bool
    attempt: str = ""
    """The same when a client asks again because it got no answer."""


class GroupConsumer:
    """One group on one topic, for all clients of this process."""

    def __init__(self, consumer: Consumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._polls = 0
        self._used_at = clock.monotonic()
        self.holdings = Holdings(clock)

    @property
    def idle(self) -> bool:
        unused = self._clock.monotonic() - self._used_at > IDLE_S
        return unused and not self._polls and not len(self.holdings)

    async def start(self) -> None:
        await self._consumer.start()

    async def close(self) -> None:
        """Leave; what clients hold goes back."""
        await self._consumer.close()

    async def poll(self, poll: Poll) -> list[HandedOut]:
        """Messages with receipts; none if none came in time."""
        again = self.holdings.answered(poll.attempt)
        if again:
            return again
        self.holdings.check_room(poll.rows)
        if self._polls >= POLLS_MAX:
            raise OverLimit(f"{POLLS_MAX} polls wait for this group already")
        self._polls += 1
        try:
            messages = await self._next(poll)
        finally:
            self._polls -= 1
            self._used_at = self._clock.monotonic()
        held = self.holdings.hold(messages, poll.client_id, poll.invisible_ms, push=poll.push)
        self.holdings.keep_answer(poll.attempt, held)
        return held

    async def _next(self, poll: Poll) -> list[Message]:
        try:
            async with asyncio.timeout(max(poll.wait_s, 0.001)):
                batch = await self._consumer.next_batch(poll.rows, exact=True)
        except TimeoutError:
            return []
        return list(batch) if batch is not None else []

    async def ack(self, receipt: str) -> None:
        """Returns when the broker has it."""
        self._used_at = self._clock.monotonic()
        await self.holdings.take(receipt).message.ack()

    async def retry(self, receipt: str, after_s: float | None, reason: str) -> None:
        await self.holdings.take(receipt).message.retry(after=after_s, reason=reason)

    async def reject(self, receipt: str, reason: str) -> None:
        await self.holdings.take(receipt).message.reject(reason=reason)


class GroupConsumers:
    """All consumers of one gateway process."""

    def __init__(self, mq: Client, clock: Clock, start: StartLike) -> None:
        self._mq = mq
        self._clock = clock
        self._start = start
        self._open: dict[Interest, GroupConsumer] = {}
        self._of_group: dict[tuple[str, str], list[GroupConsumer]] = {}
        self._opening: dict[Interest, asyncio.Lock] = {}

    async def get(self, interest: Interest) -> GroupConsumer:
        """The consumer of this process; joins the group if there is none."""
        found = self._open.get(interest)
        if found is not None:
            return found
        if len(self._open) >= CONSUMERS_MAX:
            raise OverLimit(f"{CONSUMERS_MAX} groups are consumed by this gateway already")
        lock = self._opening.setdefault(interest, asyncio.Lock())
        try:
            async with lock:
                found = self._open.get(interest)
                return found if found is not None else await self._join(interest)
        finally:
            if not lock.locked():
                self._opening.pop(interest, None)

    async def _join(self, interest: Interest) -> GroupConsumer:
        consumer = self._mq.consumer(
            interest.topic,
            group=interest.group,
            tag=interest.tag or None,
            filter=interest.filter or None,
            ordered=interest.ordered,
            start=self._start,
            on_demand=True,
            create=False,
        )
        made = GroupConsumer(consumer, self._clock)
        await made.start()
        self._open[interest] = made
        self._of_group.setdefault((interest.topic, interest.group), []).append(made)
        return made

    async def _leave(self, interest: Interest) -> None:
        consumer = self._open.pop(interest)
        named = (interest.topic, interest.group)
        self._of_group[named].remove(consumer)
        if not self._of_group[named]:
            del self._of_group[named]
        await consumer.close()

    async def poll(self, interest: Interest, poll: Poll) -> list[HandedOut]:
        """Messages of a group; a consumer that failed is let go, and made anew by the next."""
        consumer = await self.get(interest)
        try:
            return await consumer.poll(poll)
        except OverLimit:
            raise
        except TernError:
            if self._open.get(interest) is consumer:
                await self._leave(interest)
            raise

    def holder(self, topic: str, group: str, receipt: str) -> GroupConsumer:
        """The consumer whose receipt this is; `LeaseLost` where there is none."""
        for consumer in self._of_group.get((topic, group), ()):
            try:
                consumer.holdings.find(receipt)
            except LeaseLost:
                continue
            return consumer
        raise LeaseLost("this receipt is over, or of another group: its message comes again")

    def client_gone(self, client_id: str) -> None:
        """Give back what it had."""
        for interest, consumer in self._open.items():
            rows = consumer.holdings.client_gone(client_id)
            if rows:
                log.info(
                    "messages of a client that is gone are given back",
                    client=client_id,
                    group=interest.group,
                    messages=rows,
                )

    async def run(self) -> None:
        """Look after times of invisibility, and leave groups that nobody asks for."""
        while True:
            await asyncio.sleep(LOOK_S)
            for interest, consumer in list(self._open.items()):
                try:
                    consumer.holdings.expire()
                    if consumer.idle:
                        await self._leave(interest)
                except TernError as error:
                    log.warning("a consumer failed", group=interest.group, reason=error.message)

    async def close(self) -> None:
        await asyncio.gather(*(self._leave(interest) for interest in list(self._open)))
