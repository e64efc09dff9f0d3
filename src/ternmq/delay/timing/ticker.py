"""Finds due rows on every tick: sleeps by the monotonic clock, compares with the wall clock.

Each tick reads the wall clock anew, so a jump is followed at once and nothing is derived from the
time before it: forward, what is due by the new time goes out, as late rows do; backward, what is
not yet out waits for its time. What went out stays out. A jump is logged and counted.
"""

import asyncio
from collections.abc import Callable

from ternmq.core.clock import Clock
from ternmq.core.log import get_logger
from ternmq.delay.timing.engine import Engine

log = get_logger()

JUMP_MS = 1_000


class ClockWatch:
    """Notices when the wall clock and the monotonic one disagree, between two looks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms = clock.now_ms()
        self._steady = clock.monotonic()
        self.jumps = 0

    def look(self) -> int:
        """Milliseconds by which the wall clock jumped since the last look; 0 if it did not."""
        wall_ms, steady = self._clock.now_ms(), self._clock.monotonic()
        jump = wall_ms - self._wall_ms - round((steady - self._steady) * 1000)
        self._wall_ms, self._steady = wall_ms, steady
        if abs(jump) < JUMP_MS:
            return 0
        self.jumps += 1
        return jump


class Ticker:
    """Looks for due rows, tick by tick."""

    def __init__(
        self, engine: Engine, *, clock: Clock, tick_ms: int, wake: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._tick_s = tick_ms / 1000
        self._wake = wake
        self.watch = ClockWatch(clock)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            jump = self.watch.look()
            if jump:
                log.warning("the clock of this machine jumped", by_ms=jump, jumps=self.watch.jumps)
            if self._engine.tick(self._clock.now_ms(), self._clock.monotonic()):
                self._wake()
            now = loop.time()
            await asyncio.sleep(self._tick_s - now % self._tick_s)
