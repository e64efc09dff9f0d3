"""SIGKILL at a chosen point: programs of tests wrap functions; the product has no switch."""

import asyncio
import os
import signal
from typing import Any


def die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def wrap(owner: Any, name: str, *, before: bool) -> None:
    """Die before or after a method."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if before:
            die()
        result = original(*arguments, **named)
        die()
        return result

    async def wrapped_async(*arguments: Any, **named: Any) -> Any:
        if before:
            die()
        result = await original(*arguments, **named)
        die()
        return result

    is_async = asyncio.iscoroutinefunction(original)
    setattr(owner, name, wrapped_async if is_async else wrapped)
