"""A handler of `app.broadcast`: each instance of the application calls it for every message.

One message at a time, in order: an `async def` on the event loop, a plain function in a thread.
Nothing is leased, so there is nothing to settle and no retry: what a handler raises is logged, and
the next message comes. What runs when the app stops may finish within `drain_timeout`.
"""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ternmq.client.app.subscriber import is_coroutine
from ternmq.client.model.durations import typed
from ternmq.client.model.last_error import writable
from ternmq.client.model.message import Message
from ternmq.client.reading.broadcast import Broadcast, BroadcastOptions
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.log import get_logger

log = get_logger()


@dataclass(frozen=True, slots=True)
class BroadcastHandler:
    """One handler and the topic it reads along."""

    handler: Callable[[Message], Any]
    topic: str
    options: BroadcastOptions

    @classmethod
    def of(
        cls, handler: Callable[..., Any], topic: str, options: BroadcastOptions
    ) -> "BroadcastHandler":
        """Refuses what cannot be called with a message, where it is written."""
        if not callable(handler):
            raise BadRequest(f"a handler is a function of a message, not {typed(handler)}")
        try:
            inspect.signature(handler).bind("message")
        except TypeError as error:
            raise BadRequest(f"a broadcast handler is called with (message): {error}") from error
        except ValueError:  # Not written in Python: nobody can say.
            pass
        return cls(handler, topic, options)

    @property
    def name(self) -> str:
        return getattr(self.handler, "__name__", type(self.handler).__name__)


class BroadcastLoop:
    """Feeds one handler from one broadcast."""

    def __init__(self, every: Broadcast, handler: BroadcastHandler) -> None:
        self._every = every
        self._handler = handler
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until this is cancelled; the handler that runs goes on."""
        try:
            async for message in self._every:
                self._running = asyncio.create_task(self._call(message))
                await asyncio.shield(self._running)
        except TernError as error:
            log.error(
                "a handler gets no more messages",
                topic=self._handler.topic,
                handler=self._handler.name,
                reason=error.message,
            )
            raise

    async def drain(self, until: float, hurry: asyncio.Event) -> None:
        """Wait for the handler that runs, until that moment or `hurry`; then cancel it."""
        if self._running is None or self._running.done():
            return
        hurried = asyncio.create_task(hurry.wait())
        left = max(0.0, until - asyncio.get_running_loop().time())
        some = asyncio.FIRST_COMPLETED
        await asyncio.wait({self._running, hurried}, timeout=left, return_when=some)
        hurried.cancel()
        if not self._running.done():
            log.warning("a handler cut off by stopping", handler=self._handler.name)
            self._running.cancel()

    async def _call(self, message: Message) -> None:
        handler = self._handler.handler
        try:
            if is_coroutine(handler):
                await handler(message)
            else:
                await asyncio.to_thread(handler, message)
        except Exception as error:
            log.exception(
                "a broadcast handler failed; it is not tried again",
                topic=message.topic,
                id=message.id,
                handler=self._handler.name,
                reason=f"{type(error).__name__}: {writable(error)}",
            )
