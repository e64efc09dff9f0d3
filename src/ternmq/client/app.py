"""`App`: handlers by decorator, run as tasks or in threads.

    app = ternmq.App("tern://127.0.0.1:7700", app="shop")

    @app.subscriber("order.paid", group="billing", concurrency=16)
    async def bill(message): ...

    app.run()

Returning acks, raising gives the message back for a retry after 5 s with the error as its reason
(Q14), unless the handler settled it itself. Plain functions run in a pool of `concurrency` threads
(Q17). SIGINT and SIGTERM stop the pulling, wait for running handlers (bounded) and flush.
"""

import asyncio
import inspect
import signal
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from ternmq.client.client import Client, connect
from ternmq.client.config import ConnectOptions, make_config, nearest_text
from ternmq.client.consumer import Consumer, ConsumerOptions, make_plan
from ternmq.client.delivery import writable
from ternmq.client.message import Message
from ternmq.core.errors import BadRequest, Closed
from ternmq.core.log import get_logger

Handler = Callable[[Message], Any]

CONCURRENCY_MAX = 10_000
LOCAL_RETRIES_MAX = 100
STOP_TIMEOUT_S = 30.0

log = get_logger()


class SubscriberOptions(TypedDict, total=False):
    """The keywords of `subscriber` besides topics and group; the rest are those of `consumer`."""

    concurrency: int
    local_retries: int
    retry_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One handler and what it is fed with."""

    handler: Handler
    topics: list[str]
    group: str
    concurrency: int
    local_retries: int
    retry_after: float | None
    options: ConsumerOptions


def _number(name: str, value: Any, low: float, high: float) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadRequest(f"{name} is {value!r}; it can be {low} to {high}")
    return value


class App:
    """Handlers and the client they run on."""

    def __init__(self, url: str, **options: Unpack[ConnectOptions]) -> None:
        make_config(options)  # Refuse bad options where they are written.
        self._url = url
        self._options = options
        self._subscribers: list[Subscriber] = []
        self._stack: AsyncExitStack | None = None
        self._feeds: list[asyncio.Task[None]] = []
        self._mq: Client | None = None

    @property
    def mq(self) -> Client:
        """The app's client, while it runs: handlers send with it."""
        if self._mq is None:
            raise Closed("the app is not running")
        return self._mq

    def subscriber(
        self, topics: str | Sequence[str], *, group: str, **options: Any
    ) -> Callable[[Handler], Handler]:
        """Register a handler for one or several topics (R24).

        `concurrency`: messages handled at once. `local_retries`: tries again at once before the
        message is given back. `retry_after`: seconds until it comes again, instead of by the
        group's policy. The rest is passed to `consumer` (start, prefetch, filter, ordered, …).
        """
        own = {
            name: options.pop(name) for name in SubscriberOptions.__annotations__ if name in options
        }
        known = sorted({*ConsumerOptions.__annotations__, *SubscriberOptions.__annotations__})
        for name in options:
            if name not in known:
                raise BadRequest(
                    f"subscriber() has no option {name!r}; {nearest_text(name, known)}"
                )
        concurrency = _number("concurrency", own.get("concurrency", 1), 1, CONCURRENCY_MAX)
        options.setdefault("prefetch", max(2 * concurrency, 100))
        plan = make_plan(topics, group, options, timeout=1)  # type: ignore[arg-type]

        def register(handler: Handler) -> Handler:
            self._subscribers.append(
                Subscriber(
                    handler=handler,
                    topics=plan.topics,
                    group=group,
                    concurrency=concurrency,
                    local_retries=_number(
                        "local_retries", own.get("local_retries", 0), 0, LOCAL_RETRIES_MAX
                    ),
                    retry_after=None
                    if own.get("retry_after") is None
                    else _number("retry_after", own["retry_after"], 0, 2**31),
                    options=options,  # type: ignore[arg-type]
                )
            )
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
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with self:
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait([stopped, *self._feeds], return_when=asyncio.FIRST_COMPLETED)
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
        async with AsyncExitStack() as stack:
            self._mq = mq = await stack.enter_async_context(connect(self._url, **self._options))
            for subscriber in self._subscribers:
                consumer = mq.consumer(
                    subscriber.topics, group=subscriber.group, **subscriber.options
                )
                await stack.enter_async_context(consumer)
                call = _caller(subscriber, stack)
                self._feeds.append(
                    asyncio.create_task(
                        _feed(consumer, subscriber, call), name=f"tern-{subscriber.group}"
                    )
                )
            self._stack = stack.pop_all()
        log.info("app ready", url=self._url, subscribers=len(self._subscribers))
        return self

    async def stop(self) -> None:
        """Take no more messages, wait for running handlers, flush, leave; raises what failed."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.cancel()
        results = await asyncio.gather(*feeds, return_exceptions=True)
        await stack.aclose()
        self._mq = None
        for result in results:
            if isinstance(result, Exception):
                raise result


def _caller(subscriber: Subscriber, stack: AsyncExitStack) -> Callable[[Message], Awaitable[Any]]:
    """How this handler is called: as a coroutine, or in its own threads."""
    handler = subscriber.handler
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    ):
        return handler
    pool = ThreadPoolExecutor(subscriber.concurrency, thread_name_prefix=subscriber.group)
    stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    loop = asyncio.get_running_loop()

    async def in_thread(message: Message) -> Any:
        return await loop.run_in_executor(pool, handler, message)

    return in_thread


async def _feed(
    consumer: Consumer, subscriber: Subscriber, call: Callable[[Message], Awaitable[Any]]
) -> None:
    """Hand messages to at most `concurrency` handlers; on cancel, wait for those that run."""
    running: set[asyncio.Task[None]] = set()
    free = asyncio.Semaphore(subscriber.concurrency)
    try:
        while True:
            await free.acquire()
            try:
                message = await anext(consumer)
            except StopAsyncIteration:
                return
            task = asyncio.create_task(_handle(message, subscriber, call))
            running.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(lambda _: free.release())
    finally:
        if running:
            _, slow = await asyncio.wait(running, timeout=STOP_TIMEOUT_S)
            for task in slow:
                log.warning("handler did not finish in time", group=subscriber.group)
                task.cancel()


async def _handle(
    message: Message, subscriber: Subscriber, call: Callable[[Message], Awaitable[Any]]
) -> None:
    """Call the handler for one message and settle it by how that ends."""
    for attempt in range(subscriber.local_retries + 1):
        try:
            await call(message)
        except Exception as error:
            reason = f"{type(error).__name__}: {writable(error)}"
            if attempt < subscriber.local_retries and not message.settled:
                continue
            log.warning(
                "handler failed",
                topic=message.topic,
                group=subscriber.group,
                id=message.id,
                attempt=message.attempt,
                reason=reason,
            )
            message.retry(after=subscriber.retry_after, reason=reason)
        else:
            message.ack()
        return
