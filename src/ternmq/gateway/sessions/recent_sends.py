"""Messages that were sent a moment ago, so that a client's second try is answered with the first.

For delayed and half messages, which servers do not recognise by the ids that clients give them.
It holds within this process: a resend to another gateway, or after a restart, is stored twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from ternmq.core.clock import Clock

KEPT_S = 600.0
KEPT_MAX = 100_000

T = TypeVar("T")


class RecentSends:
    """By topic and message id, what became of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[tuple[str, bytes], tuple[float, asyncio.Task[object]]] = {}

    async def once(self, topic: str, message_id: bytes, send: Callable[[], Awaitable[T]]) -> T:
        """What `send` returned for this message, also for the second who asks; a failed one may
        be tried again. A caller that goes does not stop it: nobody would know what became of it."""
        self._drop_old()
        found = self._sent.get((topic, message_id))
        if found is None or _failed(found[1]):
            task = asyncio.ensure_future(_run(send))
            self._sent[topic, message_id] = found = (self._clock.monotonic() + KEPT_S, task)
        return cast(T, await asyncio.shield(found[1]))

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        while self._sent:
            key = next(iter(self._sent))
            until, task = self._sent[key]
            if until > now and len(self._sent) < KEPT_MAX:
                return
            if not task.done():
                return
            del self._sent[key]


async def _run(send: Callable[[], Awaitable[object]]) -> object:
    return await send()


def _failed(task: "asyncio.Task[object]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
