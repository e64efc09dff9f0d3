"""Deadlines of many calls behind one timer: rounded up to a tenth of a second.

Adding and removing are a set's; the timer runs only while there are calls that have a deadline.
"""

import asyncio
from typing import Protocol

TICK_S = 0.1


class Expiring(Protocol):
    """What has a deadline."""

    def expired(self) -> None: ...


class CallDeadlines:
    """Which calls of one listener end when."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: dict[int, set[Expiring]] = {}
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._ticks.values()))

    def add(self, call: Expiring, deadline: float) -> int:
        """Returns what `remove` needs."""
        tick = int(deadline / TICK_S) + 1
        if self._timer is None:
            self._next = int(self._loop.time() / TICK_S)
            self._timer = self._loop.call_later(TICK_S, self._run)
        tick = max(tick, self._next)
        found = self._ticks.get(tick)
        if found is None:
            self._ticks[tick] = {call}
        else:
            found.add(call)
        return tick

    def remove(self, call: Expiring, tick: int) -> None:
        found = self._ticks.get(tick)
        if found is not None:
            found.discard(call)
            if not found:
                del self._ticks[tick]

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ticks.clear()

    def _run(self) -> None:
        now = int(self._loop.time() / TICK_S)
        self._timer = None
        over: list[Expiring] = []
        for tick in range(self._next, now + 1):
            over.extend(self._ticks.pop(tick, ()))
        self._next = now + 1
        if self._ticks:
            self._timer = self._loop.call_later(TICK_S, self._run)
        for call in over:
            call.expired()
