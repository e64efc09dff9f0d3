"""Start and stop: background loops live exactly as long as the block that owns them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(**loops: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run named loops while the block runs.

    Leaving the block cancels the loops and waits for them. A loop that fails cancels the block, so
    a broker cannot look alive with a dead part inside.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run(loop), name=name) for name, loop in loops.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _run(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()
