"""One membership of this process for each topic, group and filter that clients poll.

A poll pulls exactly what its client asked for, under a detached lease at the broker, so nothing
lies here that another consumer could have, and a TernMQ client may be in the same group. A
membership ends when nobody has polled for a while.
"""

import asyncio
from dataclasses import dataclass

from ternmq.client.client import Client
from ternmq.client.consuming.detached_consumer import (
    DetachedConsumer,
    DetachedMessage,
    HandleVerdict,
)
from ternmq.client.model.start import StartLike
from ternmq.core.clock import Clock
from ternmq.core.errors import OverLimit, TernError
from ternmq.core.log import get_logger
from ternmq.gateway.sessions.push_leases import LEASE_S, PushLeases
from ternmq.gateway.sessions.receipt_handles import ReceiptHandles

CONSUMERS_MAX = 5_000
POLLS_MAX = 2_000
"""That wait for one group."""
IDLE_S = 20.0
LOOK_S = 0.5

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What this process takes part in."""

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
    invisible_s: float
    """Of a simple consumer."""
    push: bool
    attempt: str = ""
    """The same when a client asks again because it got no answer."""


class GroupMembership:
    """One group on one topic, for all clients of this process."""

    def __init__(self, consumer: DetachedConsumer, clock: Clock) -> None:
        self._consumer = consumer
        self._clock = clock
        self._polls = 0
        self._used_at = clock.monotonic()

    @property
    def idle(self) -> bool:
        return not self._polls and self._clock.monotonic() - self._used_at > IDLE_S

    async def close(self) -> None:
        await self._consumer.close()

    async def pull(self, poll: Poll) -> list[DetachedMessage]:
        if self._polls >= POLLS_MAX:
            raise OverLimit(f"{POLLS_MAX} polls wait for this group already")
        self._polls += 1
        lease_s = LEASE_S if poll.push else poll.invisible_s
        try:
            return await self._consumer.pull(poll.rows, wait=poll.wait_s, lease=lease_s)
        finally:
            self._polls -= 1
            self._used_at = self._clock.monotonic()


class GroupConsumers:
    """All memberships of one gateway process, and what became of what they brought."""

    def __init__(self, mq: Client, clock: Clock, start: StartLike) -> None:
        self._mq = mq
        self._clock = clock
        self._start = start
        self._open: dict[Interest, GroupMembership] = {}
        self._settling = ReceiptHandles(mq)
        self.pushed = PushLeases(self._settling, clock)

    def _membership(self, interest: Interest) -> GroupMembership:
        found = self._open.get(interest)
        if found is not None:
            return found
        if len(self._open) >= CONSUMERS_MAX:
            raise OverLimit(f"{CONSUMERS_MAX} groups are consumed by this gateway already")
        consumer = self._mq.detached_consumer(
            interest.topic,
            group=interest.group,
            tag=interest.tag or None,
            filter=interest.filter or None,
            ordered=interest.ordered,
            start=self._start,
        )
        made = self._open[interest] = GroupMembership(consumer, self._clock)
        return made

    async def poll(self, interest: Interest, poll: Poll) -> list[DetachedMessage]:
        """Messages of a group; a membership that failed is let go, and made anew by the next."""
        if poll.push:
            self.pushed.check_room()
            again = self.pushed.answered(poll.client_id, poll.attempt)
            if again:
                return again
        membership = self._membership(interest)
        try:
            found = await membership.pull(poll)
        except OverLimit:
            raise
        except TernError:
            if self._open.get(interest) is membership:
                del self._open[interest]
                await membership.close()
            raise
        if poll.push:
            place = (interest.topic, interest.group)
            self.pushed.hold(poll.client_id, place, poll.attempt, found)
        return found

    async def settle(self, client_id: str, topic: str, group: str, verdict: HandleVerdict) -> None:
        """What became of one message; raises `LeaseLost` where that came too late."""
        self.pushed.settled(client_id, [verdict.handle])
        await self._settling.settle_one(topic, group, verdict)

    async def extend(self, topic: str, group: str, handle: str, seconds: float) -> bool:
        """Keep a message for so long from now; False: it came too late."""
        return not await self._settling.extend(topic, group, [handle], seconds)

    async def give_back(
        self, client_id: str, interest: Interest, messages: list[DetachedMessage]
    ) -> None:
        """Messages that did not reach their client are as before."""
        self.pushed.settled(client_id, [each.handle for each in messages])
        back = [HandleVerdict(handle=each.handle, outcome="back") for each in messages]
        try:
            await self._settling.settle(interest.topic, interest.group, back)
        except TernError as error:
            log.info("messages come when their lease is over", reason=error.message)

    async def run(self) -> None:
        """Leave groups that nobody polls."""
        while True:
            await asyncio.sleep(LOOK_S)
            for interest, membership in list(self._open.items()):
                if membership.idle:
                    del self._open[interest]
                    await membership.close()

    async def close(self) -> None:
        """Leave everywhere; what clients hold stays theirs."""
        memberships, self._open = list(self._open.values()), {}
        await asyncio.gather(*(each.close() for each in memberships))
