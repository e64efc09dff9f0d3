"""One message or batch through its handler: middlewares, the call, what it returns sent on, the
end.

    async with every middleware: result = handler(unit); send what it returned
    then ack, or retry, reject or ignore by the rules of the subscriber

Failures are first tried again in place, `local_retries` times (J10), where a retry is what the
rules say; a time-out is not, since a thread may still be at it. What a handler returns is stored
before its message is acked, so a crash in between sends it again and never loses it. Nothing is
logged here.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

from ternmq.client.app.failure_rules import FailureVerdict
from ternmq.client.app.handler_pool import HandlerPool, TimedOut
from ternmq.client.app.subscriber import Subscriber
from ternmq.client.model.last_error import writable
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.tracing import TRACING

NOT_SETTLED = "the handler returned without settling it"

Unit = Message | MessageBatch
Publish = Callable[[Any], Awaitable[Any]]


class HandlerEnd(NamedTuple):
    """How a handler ended."""

    result: Any = None
    error: Exception | None = None
    verdict: FailureVerdict = "retry"
    """What the rules say about the error."""
    busy: "asyncio.Future[None] | None" = None
    """Done when the thread that is still at it is free again."""

    @property
    def reason(self) -> str:
        return f"{type(self.error).__name__}: {writable(self.error)}"


class HandlerRun:
    """Runs the handler of one subscriber."""

    def __init__(
        self, subscriber: Subscriber, pool: HandlerPool, publish: Publish | None = None
    ) -> None:
        self._subscriber = subscriber
        self._pool = pool
        self._publish = publish

    async def run(self, unit: Unit) -> HandlerEnd:
        """Call the handler until it returns or tries are used up; settles nothing."""
        subscriber = self._subscriber
        attempt = 0
        while True:
            try:
                return HandlerEnd(await self._call(unit))
            except TimedOut as late:
                return HandlerEnd(error=late, busy=late.until)
            except Exception as error:
                verdict = subscriber.rules.verdict(error)
                if verdict != "retry" or attempt >= subscriber.local_retries or unit.settled:
                    return HandlerEnd(error=error, verdict=verdict)
            attempt += 1

    def settle(self, unit: Unit, end: HandlerEnd) -> None:
        """By how it ended; what the handler settled itself stays as it said."""
        subscriber = self._subscriber
        if end.error is None:
            if subscriber.auto_ack:
                unit.ack()
            elif not unit.settled:
                unit.retry(after=subscriber.retry_after, reason=NOT_SETTLED)
        elif end.verdict == "reject":
            unit.reject(reason=end.reason, error=end.error)
        elif end.verdict == "ignore":
            unit.ack()
        else:
            unit.retry(after=subscriber.retry_after, reason=end.reason, error=end.error)

    async def _call(self, unit: Unit) -> Any:
        if TRACING.tracer is None:
            return await self._inside(unit)
        with TRACING.tracer.handling(self._subscriber.group, unit):
            return await self._inside(unit)

    async def _inside(self, unit: Unit) -> Any:
        if not self._subscriber.middlewares:
            return await self._sent_on(await self._pool.call(unit))
        result = None
        async with contextlib.AsyncExitStack() as stack:
            for middleware in self._subscriber.middlewares:
                await stack.enter_async_context(_around(middleware, unit))
            result = await self._sent_on(await self._pool.call(unit))
        return result

    async def _sent_on(self, result: Any) -> Any:
        if self._publish is not None and result is not None:
            await self._publish(result)
        return result


def _around(middleware: Callable[[Any], Any], unit: Unit) -> AbstractAsyncContextManager[Any]:
    around = middleware(unit)
    if not isinstance(around, AbstractAsyncContextManager):
        raise TypeError(
            f"the middleware {getattr(middleware, '__name__', middleware)!r} returned "
            f"{type(around).__name__}; it is a function under @asynccontextmanager"
        )
    return around
