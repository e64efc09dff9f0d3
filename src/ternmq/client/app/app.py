"""`App`: handlers by decorator, run as tasks or in threads.

    app = ternmq.App("tern://127.0.0.1:7700", app="shop")

    @app.subscriber("order.paid", group="billing", concurrency=16)
    async def bill(message): ...

    app.run()

`subscriber.py` checks what a decorator asks for, `handler_pool.py` runs handlers, `handler_loop.py`
settles by how they end. SIGINT and SIGTERM drain: no more is taken, running handlers may finish
within `drain_timeout`, the rest is given back, acks are flushed. A second signal does not wait.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Unpack

from ternmq.client.app.handler_loop import HandlerLoop
from ternmq.client.app.handler_pool import make_pool
from ternmq.client.app.loop_watch import watch_lag
from ternmq.client.app.subscriber import Feeding, Subscriber
from ternmq.client.client import Client, connect
from ternmq.client.config import ConnectOptions, make_config
from ternmq.core.errors import BadRequest, Closed
from ternmq.core.log import get_logger

DRAIN_TIMEOUT_S = 30.0
DRAIN_TIMEOUT_MAX_S = 24 * 3600.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)

log = get_logger()


class App:
    """Handlers and the client they run on."""

    def __init__(
        self, url: str, *, drain_timeout: float = DRAIN_TIMEOUT_S, **options: Unpack[ConnectOptions]
    ) -> None:
        make_config(options)  # Refuse bad options where they are written.
        if isinstance(drain_timeout, bool) or not 0 <= drain_timeout <= DRAIN_TIMEOUT_MAX_S:
            raise BadRequest(f"drain_timeout is {drain_timeout!r}; it is seconds, 0 to a day")
        self._url = url
        self._options = options
        self._drain_timeout = drain_timeout
        self._subscribers: list[Subscriber] = []
        self._stack: AsyncExitStack | None = None
        self._handler_loops: list[HandlerLoop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry = asyncio.Event()
        self._mq: Client | None = None

    @property
    def mq(self) -> Client:
        """The app's client, while it runs: handlers send with it."""
        if self._mq is None:
            raise Closed("the app is not running")
        return self._mq

    def subscriber(
        self, topics: str | Sequence[str], *, group: str, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a handler for one or several topics.

        `concurrency`: messages (or batches) handled at once, by `pool` "tasks" or "threads".
        `batch`: the handler gets up to `batch_size` messages, gathered for `batch_wait` seconds.
        `auto_ack=False`: the handler settles. `timeout`: seconds that one call may take.
        `local_retries`: tries again at once before the message is given back. `retry_after`:
        seconds until it comes again, instead of by the group's policy. `inbox`: remembers what was
        handled (`ternmq.inbox`) and hands the handler a session. The rest is passed to
        `consumer` (start, prefetch, filter, ordered, …).
        """
        feeding = Feeding(topics, group, options)

        def register(handler: Callable[..., Any]) -> Callable[..., Any]:
            self._subscribers.append(feeding.of(handler))
            return handler

        return register

    # Running.

    def run(self) -> None:
        """Run until SIGINT or SIGTERM."""
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._run_until_signalled())

    async def _run_until_signalled(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def signalled() -> None:
            if not stop.is_set():
                stop.set()
                return
            self._hurry.set()
            for number in SIGNALS:  # A third one ends the process there and then.
                loop.remove_signal_handler(number)

        for number in SIGNALS:
            loop.add_signal_handler(number, signalled)
        async with self:
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([stopped, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            log.info("app stopping", app=self.mq.app)

    async def __aenter__(self) -> "App":
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    async def start(self) -> "App":
        """Connect, join all groups and begin to handle."""
        if self._stack is not None:
            raise BadRequest("the app is running already")
        self._hurry = asyncio.Event()
        async with AsyncExitStack() as stack:
            self._mq = mq = await stack.enter_async_context(connect(self._url, **self._options))
            await stack.enter_async_context(watch_lag())
            for subscriber in self._subscribers:
                consumer = mq.consumer(
                    subscriber.topics, group=subscriber.group, **subscriber.options
                )
                await stack.enter_async_context(consumer)
                pool = make_pool(subscriber)
                stack.callback(pool.close)
                self._handler_loops.append(HandlerLoop(consumer, subscriber, pool))
            for handler_loop, subscriber in zip(
                self._handler_loops, self._subscribers, strict=True
            ):
                self._tasks.append(
                    asyncio.create_task(handler_loop.run(), name=f"tern-{subscriber.group}")
                )
            self._stack = stack.pop_all()
        log.info("app ready", url=self._url, subscribers=len(self._subscribers))
        return self

    async def stop(self) -> None:
        """Take no more messages, wait for running handlers, flush, leave; raises what failed."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        tasks, self._tasks = self._tasks, []
        handler_loops, self._handler_loops = self._handler_loops, []
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        until = asyncio.get_running_loop().time() + self._drain_timeout
        await asyncio.gather(
            *(handler_loop.drain(until, self._hurry) for handler_loop in handler_loops)
        )
        await stack.aclose()
        self._mq = None
        for result in results:
            if isinstance(result, Exception):
                raise result
