"""`App`: handlers by decorator, run as tasks or in threads.

    app = ternmq.App("tern://127.0.0.1:7700", app="shop")

    @app.subscriber("order.paid", group="billing", concurrency=16)
    async def bill(message): ...

    app.run()

It is a `Router` that runs. `subscriber.py` checks what a decorator asks for, `parameters.py` what a
handler's parameters get, `handler_pool.py` runs handlers, `handler_loop.py` feeds them; those of
`app.broadcast` are in `broadcast_handler.py`. `lifespan=` is entered first, before anybody is
connected to, so that what answers a health check does not wait for a broker; `on_startup` functions
run with the client at hand, before the first message is taken. SIGINT and SIGTERM drain: no more is
taken, running handlers may finish within `drain_timeout`, the rest is given back, acks are flushed.
A second signal does not wait.
"""

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar, Unpack

from ternmq.client.app.broadcast_handler import BroadcastHandler, BroadcastLoop
from ternmq.client.app.handler_loop import HandlerLoop
from ternmq.client.app.handler_pool import make_pool
from ternmq.client.app.handler_run import HandlerRun, Publish
from ternmq.client.app.last_attempts import LastAttempts
from ternmq.client.app.local_delivery import LocalDelivery, deliver_locally
from ternmq.client.app.loop_watch import watch_lag
from ternmq.client.app.result_sender import ResultSender
from ternmq.client.app.router import Router
from ternmq.client.app.subscriber import Middleware, Subscriber, SubscriberOptions
from ternmq.client.client import Client, connect
from ternmq.client.codecs.codec import find_codec
from ternmq.client.config import ConnectOptions, make_config
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.model.durations import Duration, seconds_of, typed
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.reading.broadcast import Broadcast, BroadcastOptions, check_broadcast
from ternmq.client.transport.attempts import Attempts
from ternmq.core.errors import BadRequest, Closed, TernError
from ternmq.core.log import get_logger
from ternmq.core.process import run_loop
from ternmq.discovery.url import parse_url

DRAIN_TIMEOUT_S = 30.0
DRAIN_TIMEOUT_MAX_S = 24 * 3600.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)

H = TypeVar("H", bound=Callable[..., Any])
F = TypeVar("F", bound=Callable[[], Any])
T = TypeVar("T")
Hook = Callable[[], Any]
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

log = get_logger()


class App(Router):
    """Handlers and the client they run on."""

    def __init__(
        self,
        url: str,
        *,
        drain_timeout: Duration = DRAIN_TIMEOUT_S,
        lifespan: Lifespan | None = None,
        middlewares: Iterable[Middleware] = (),
        **options: Unpack[ConnectOptions],
    ) -> None:
        super().__init__(middlewares=middlewares)
        make_config(options)  # Refuse bad options where they are written.
        parse_url(url)
        if lifespan is not None and not callable(lifespan):
            raise BadRequest(
                f"lifespan is {typed(lifespan)}; it is a function that takes the app and returns "
                "an async context manager (@asynccontextmanager)"
            )
        self._url = url
        self._options = options
        self._drain_timeout = seconds_of("drain_timeout", drain_timeout, 0, DRAIN_TIMEOUT_MAX_S)
        self._lifespan = lifespan
        self._at_start: list[Hook] = []
        self._at_ready: list[Hook] = []
        self._at_stop: list[Hook] = []
        self._stop: asyncio.Event | None = None
        """In `run`: until then servers that are away are waited for."""
        self._broadcasts: list[BroadcastHandler] = []
        self._stack: AsyncExitStack | None = None
        self._handler_loops: list[HandlerLoop] = []
        self._broadcast_loops: list[BroadcastLoop] = []
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
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[SubscriberOptions]
    ) -> Callable[[H], H]:
        """Register a handler for one or several topics.

        `concurrency`: messages (or batches) handled at once, by `pool` "tasks" or "threads".
        `batch`: the handler gets up to `batch_size` messages, gathered for `batch_wait` seconds.
        `auto_ack=False`: the handler settles. `timeout`: seconds that one call may take.
        `local_retries`: tries again at once before the message is given back. `retry_after`:
        seconds until it comes again, instead of by the group's policy. `inbox`: remembers what was
        handled (`ternmq.inbox`) and hands the handler a session. `reject_on`, `retry_on`, `ignore`:
        exception classes and what becomes of a message whose handler raised one. `publish`: the
        topic that gets what the handler returns. The rest is passed to `consumer` (start,
        prefetch, filter, ordered, …).
        """
        return super().subscriber(topics, group=group, **options)

    def broadcast(self, topic: str, **options: Unpack[BroadcastOptions]) -> Callable[[H], H]:
        """Register a handler that every instance of this app calls for every message of a topic,
        one at a time. Options as of `mq.broadcast` (position, tag, filter, codec, …). There is
        nothing to settle, and no retry: what it raises is logged."""
        check_broadcast(topic, options)

        def register(handler: H) -> H:
            self._broadcasts.append(BroadcastHandler.of(handler, topic, options))
            return handler

        return register

    def on_startup(self, function: F) -> F:
        """Call this function (plain or async, without arguments) whenever the app has connected,
        before the first message is taken: `app.mq` is there. May be a decorator."""
        self._at_start.append(_checked_hook(function))
        return function

    def on_ready(self, function: F) -> F:
        """Call it in `run` and `serve` when every handler takes messages."""
        self._at_ready.append(_checked_hook(function))
        return function

    def on_shutdown(self, function: F) -> F:
        """Call it when the app stops: handlers have ended, `app.mq` is still there."""
        self._at_stop.append(_checked_hook(function))
        return function

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Run while a web application does: `FastAPI(lifespan=app.lifespan)`, Starlette alike."""
        async with self:
            yield

    async def deliver(
        self,
        value: Any,
        *,
        topic: str | None = None,
        group: str | None = None,
        attempt: int = 1,
        **options: Unpack[SendOptions],
    ) -> LocalDelivery:
        """Call a handler with a message of that value, without any server: for tests.

        `topic` and `group` say which one where the app has several. Options as of `send` (key,
        tag, properties …). Returns the verdict, what was raised, returned and published.
        """
        subscriber = self._one_subscriber(topic, group)
        named = options.pop("codec", None) or subscriber.options.get("codec")
        codec = find_codec(named or self._options.get("codec"))
        return await deliver_locally(
            subscriber,
            value,
            topic=topic or subscriber.topics[0],
            codec=codec,
            attempt=attempt,
            options=options,
        )

    def _one_subscriber(self, topic: str | None, group: str | None) -> Subscriber:
        found = [
            subscriber
            for subscriber in self.subscribers()
            if (topic is None or topic in subscriber.topics) and group in (None, subscriber.group)
        ]
        if len(found) == 1:
            return found[0]
        names = [f"{each.name} ({', '.join(each.topics)}, {each.group})" for each in found]
        raise BadRequest(
            f"{len(found)} handlers fit; say topic= and group= so that one does"
            + (f": {'; '.join(names)}" if found else "")
        )

    # Running.

    @property
    def ready(self) -> bool:
        """True while the app is connected and every handler takes messages."""
        return self._stack is not None and not any(task.done() for task in self._tasks)

    def run(self) -> None:
        """Run until SIGINT or SIGTERM; servers that are away at the start are waited for."""
        run_loop(self.serve())

    async def serve(self) -> None:
        """As `run`, on a loop that is there already, in the main thread."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def release() -> None:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

        def signalled() -> None:
            if not stop.is_set():
                stop.set()
                return
            self._hurry.set()
            release()  # A third one ends the process there and then.

        for number in SIGNALS:
            loop.add_signal_handler(number, signalled)
        self._stop = stop
        try:
            await self._run_until(stop)
        finally:
            release()  # uvloop leaves them behind, and the process would ignore the next signals.

    async def _run_until(self, stop: asyncio.Event) -> None:
        await self.start()
        if self._stack is None:
            return  # Stopped while it waited for its servers.
        for function in self._at_ready:
            await _call_hook(function)
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopped, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            log.info("app stopping", app=self.mq.app)
        finally:
            await self.stop()

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
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            try:
                await self._begin(stack)
            except _StoppedEarly:
                return self
            self._stack = stack.pop_all()
        log.info("app ready", url=self._url, subscribers=len(self._tasks))
        return self

    async def _begin(self, stack: AsyncExitStack) -> None:
        self._mq = mq = await self._when_there(self._connect, stack)
        stack.callback(self._disconnected)
        for function in self._at_start:
            await _call_hook(function)
        await stack.enter_async_context(watch_lag())
        subscribers = self.subscribers()
        for subscriber in subscribers:
            consumer = await self._when_there(partial(self._join, mq, subscriber), stack)
            pool = make_pool(subscriber)
            stack.callback(pool.close)
            limits = LastAttempts(mq.admin.tolerant(), subscriber)
            await limits.learn()
            stack.callback(limits.stop)
            run = HandlerRun(subscriber, pool, self._publish(mq, subscriber))
            self._handler_loops.append(HandlerLoop(consumer, subscriber, run, limits))
        for handler in self._broadcasts:
            every = await self._when_there(partial(self._read_along, mq, handler), stack)
            self._broadcast_loops.append(BroadcastLoop(every, handler))
        for broadcast_loop, handler in zip(self._broadcast_loops, self._broadcasts, strict=True):
            name = f"tern-{handler.topic}"
            self._tasks.append(asyncio.create_task(broadcast_loop.run(), name=name))
        for handler_loop, subscriber in zip(self._handler_loops, subscribers, strict=True):
            self._tasks.append(
                asyncio.create_task(handler_loop.run(), name=f"tern-{subscriber.group}")
            )

    def _publish(self, mq: Client, subscriber: Subscriber) -> Publish | None:
        if subscriber.publish is None:
            return None
        codec = find_codec(self._options.get("codec"))
        return ResultSender(mq, subscriber.publish, codec, many=subscriber.batch_size > 0).send

    async def _connect(self, stack: AsyncExitStack) -> Client:
        return await stack.enter_async_context(connect(self._url, **self._options))

    async def _join(self, mq: Client, subscriber: Subscriber, stack: AsyncExitStack) -> Consumer:
        consumer = mq.consumer(subscriber.topics, group=subscriber.group, **subscriber.options)
        return await stack.enter_async_context(consumer)

    async def _read_along(
        self, mq: Client, handler: BroadcastHandler, stack: AsyncExitStack
    ) -> Broadcast:
        every = mq.broadcast(handler.topic, **handler.options)
        return await stack.enter_async_context(every)

    async def _when_there(
        self, begin: Callable[[AsyncExitStack], Coroutine[Any, Any, T]], stack: AsyncExitStack
    ) -> T:
        """Begin; in `run` again and again while the servers are away, with one line about it."""
        if self._stop is None:
            return await begin(stack)
        attempts = Attempts()
        while True:
            try:
                done = await _unless(self._stop, begin(stack))
            except TernError as error:
                if not error.retryable:
                    raise
                if not attempts.failures:
                    log.warning("app waits for its servers", url=self._url, reason=error.message)
                await _unless(self._stop, attempts.wait())
            else:
                if attempts.failures:
                    log.info("the servers are there", url=self._url)
                return done

    def _disconnected(self) -> None:
        self._mq = None
        self._handler_loops, self._broadcast_loops, self._tasks = [], [], []

    async def stop(self) -> None:
        """Take no more messages, wait for running handlers, flush, leave; raises what failed."""
        stack, self._stack = self._stack, None
        if stack is None:
            return
        tasks, self._tasks = self._tasks, []
        loops: list[HandlerLoop | BroadcastLoop] = [*self._handler_loops, *self._broadcast_loops]
        self._handler_loops, self._broadcast_loops = [], []
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        until = asyncio.get_running_loop().time() + self._drain_timeout
        await asyncio.gather(*(loop.drain(until, self._hurry) for loop in loops))
        async with stack:
            for function in self._at_stop:
                await _call_hook(function)
        for result in results:
            if isinstance(result, Exception):
                raise result


class _StoppedEarly(Exception):
    """A signal came while the app waited."""


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Do it, or end it when the app shall stop."""
    working, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        raise _StoppedEarly
    return working.result()


def _checked_hook(function: F) -> F:
    if not callable(function):
        raise BadRequest(f"it is {typed(function)}; it is a function without arguments")
    return function


async def _call_hook(function: Hook) -> None:
    done = function()
    if inspect.isawaitable(done):
        await done
