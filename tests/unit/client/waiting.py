"""Waiting for conditions, never for luck."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], timeout: float = 10.0) -> None:
    """Return as soon as the condition holds."""
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - conditions are of any kind
            await asyncio.sleep(0.005)
