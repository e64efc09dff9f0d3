"""Where handlers run: as tasks on the event loop, or in threads of their own (Q17).

Both have one call: run the handler for one message or batch, return what it returned, raise what it
raised, raise `TimedOut`
when it took too long. A task is cancelled then. A thread cannot be stopped from outside: it goes
on, its slot stays taken (`TimedOut.until` says until when), and what it returns is ignored. Threads
are daemons, so a program whose handler hangs can end.
"""

import asyncio
import threading
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Protocol

from ternmq.client.app.subscriber import HandlerFunction, Subscriber, is_coroutine

Unit = Any  # A `Message` or a `MessageBatch`.
QueuedUnit = tuple[Unit, "asyncio.Future[Any]", Context]


class TimedOut(Exception):
    """The handler took longer than its `timeout`."""

    def __init__(self, seconds: float, until: "asyncio.Future[Any] | None" = None) -> None:
        super().__init__(f"no result within {seconds:g} s")
        self.until = until
        """Done when the thread is free again; None when nothing runs any more."""


class HandlerPool(Protocol):
    """Runs the handler of one subscriber: on the loop, or in threads."""

    async def call(self, unit: Unit) -> Any: ...

    def close(self) -> None: ...


class Tasks:
    """Coroutines; and plain functions that are quick enough for the loop."""

    def __init__(self, handler: HandlerFunction, timeout: float | None) -> None:
        self._handler = handler
        self._timeout = timeout
        self._waits = is_coroutine(handler)

    async def call(self, unit: Unit) -> Any:
        if not self._waits:
            return self._handler(unit)
        if self._timeout is None:
            return await self._handler(unit)
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                return await self._handler(unit)
        except TimeoutError:
            if not scope.expired():
                raise  # The handler's own.
            raise TimedOut(self._timeout) from None

    def close(self) -> None:
        """Nothing of its own to end."""


class Threads:
    """At most `size` daemon threads, each started when first needed."""

    def __init__(
        self, handler: HandlerFunction, timeout: float | None, *, size: int, name: str
    ) -> None:
        self._handler = handler
        self._timeout = timeout
        self._size = size
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[QueuedUnit | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    async def call(self, unit: Unit) -> Any:
        done: asyncio.Future[Any] = self._loop.create_future()
        self._busy += 1
        done.add_done_callback(self._freed)
        if self._busy > self._started and self._started < self._size:
            self._started += 1
            name = f"{self._name}-{self._started}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._queue.put((unit, done, copy_context()))  # The span around it is current there too.
        await asyncio.wait([done], timeout=self._timeout)
        if not done.done():
            assert self._timeout is not None
            raise TimedOut(self._timeout, done)
        return done.result()

    def close(self) -> None:
        """Idle threads end now, the others after what they do."""
        for _ in range(self._started):
            self._queue.put(None)

    def _freed(self, done: "asyncio.Future[Any]") -> None:
        self._busy -= 1
        if not done.cancelled():
            done.exception()  # Looked at, also when nobody waits any more.

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            unit, done, context = work
            error: Exception | None = None
            result = None
            try:
                result = context.run(self._handler, unit)
            except Exception as raised:
                error = raised
            except BaseException as raised:  # A thread that ends would take its slot with it.
                error = RuntimeError(f"the handler raised {raised!r}")
            if isinstance(error, StopIteration):  # A future takes all but this one.
                error = RuntimeError(f"the handler raised {error!r}")
            try:
                self._loop.call_soon_threadsafe(_finish, done, result, error)
            except RuntimeError:
                return  # The loop is closed: the program ends.
            del work, unit, done, context, result, error  # Not kept while waiting for the next.


def _finish(done: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def make_pool(subscriber: Subscriber) -> HandlerPool:
    """The pool that a subscriber asked for."""
    if subscriber.pool == "tasks":
        return Tasks(subscriber.handler, subscriber.timeout)
    return Threads(
        subscriber.handler,
        subscriber.timeout,
        size=subscriber.concurrency,
        name=subscriber.group,
    )
