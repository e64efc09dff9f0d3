"""Where a consumer group stands, for readers that have no lease: `mq.read(group=...)` (R19).

A master knows its groups. A replica has their records and builds no groups while it follows; asked
for one it replays its copy of the pull log, only as far as that is safe, in a thread, one replay at
a time, and answers from it for a while. What it says may be a little old: then a reader sees
messages that were acked since. It never says more than the master had written.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane import Lane
from ternmq.core.clock import Clock
from ternmq.storage.pull.pull_log import PullLog
from ternmq.wire.messages.topics import Topic

RANGES_MAX = 10_000
"""Settled ranges in one answer; what lies behind them is read again."""
FRESH_S = 1.0
"""A replay is not made anew before, however much was written since."""


class GroupPositions(Protocol):
    """Finds the lane of a group; raises `GroupNotFound`."""

    async def lane(self, topic: Topic, group: str) -> Lane: ...


class LedGroups:
    """Positions as a master knows them now."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups

    async def lane(self, topic: Topic, group: str) -> Lane:
        return self._groups.get(topic.id, topic.name, group).lane


class FollowedGroups:
    """Positions as a replica's copy of the pull log says."""

    def __init__(self, pulls: PullLog, topics: Callable[[], list[Topic]], clock: Clock) -> None:
        self._pulls = pulls
        self._topics = topics
        self._clock = clock
        self._turn = asyncio.Lock()
        self._groups: ConsumerGroups | None = None
        self._safe = -1
        self._made_at = 0.0

    async def lane(self, topic: Topic, group: str) -> Lane:
        async with self._turn:
            safe = self._pulls.safe_offset
            aged = self._clock.monotonic() - self._made_at > FRESH_S
            if self._groups is None or (safe != self._safe and aged):
                names = {each.id: each.name for each in self._topics()}
                self._groups = await asyncio.to_thread(partial(self._replay, names))
                self._safe, self._made_at = safe, self._clock.monotonic()
            return self._groups.get(topic.id, topic.name, group).lane

    def _replay(self, topics: dict[int, str]) -> ConsumerGroups:
        groups = ConsumerGroups(
            clock=self._clock, record=lambda *_: None, on_settled=lambda group: None
        )
        groups.replay(self._pulls.safe_records(), topics=topics, grace_ms=0)
        return groups


def position(lane: Lane, first: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """The first row from `first` on that is not settled, and what is settled behind it."""
    at = min(lane.done.first_gap(max(first, lane.start)), end)
    return at, lane.done.overlap(at, end)[:RANGES_MAX]
