"""Logs when a handler blocks the event loop: meanwhile no lease is renewed and no ack sent.

A blocked loop cannot be freed from outside. A plain `def` handler runs in a thread and never blocks
it; a coroutine that computes or calls something blocking does.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.core.log import get_logger
from ternmq.core.loop_watch import watch_loop

LAG_MAX_S = 1.0

log = get_logger()


@asynccontextmanager
async def watch_lag() -> AsyncIterator[None]:
    """Warn after every time that the loop stood still, while the block runs."""
    now = asyncio.get_running_loop().time
    watching = asyncio.create_task(watch_loop(_warn, now), name="tern-lag")
    try:
        yield
    finally:
        watching.cancel()


def _warn(late: float) -> None:
    if late > LAG_MAX_S:
        log.warning(
            "the event loop was blocked: leases were not renewed meanwhile; use a plain 'def' "
            "handler or asyncio.to_thread for what blocks",
            seconds=round(late, 1),
        )
