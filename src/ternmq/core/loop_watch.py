"""Measures how late the event loop comes to a timer, twice a second.

A coroutine that computes, or calls something that blocks, makes everything else on its loop wait. A
blocked loop cannot be freed from outside; it can only be noticed afterwards.
"""

import asyncio
from collections.abc import Callable

LOOK_EVERY_S = 0.5


async def watch_loop(late: Callable[[float], None], now: Callable[[], float]) -> None:
    """Call `late` with the delay of every timer in seconds, forever."""
    while True:
        began = now()
        await asyncio.sleep(LOOK_EVERY_S)
        late(max(0.0, now() - began - LOOK_EVERY_S))
