"""The loop of one subscriber: takes messages, runs the handler, settles by how it ends.

Returning acks what the handler did not settle itself (with `auto_ack=False` it comes again by the
group's policy), raising gives it back for a retry (Q14, D11), or what the subscriber's rules say
about that exception. A batch is one unit: all of it is acked or retried, except rows that the
handler settled one by one. One unit is run and settled by `handler_run.py`.

At most `concurrency` units are in hand. `drain` takes no more and waits for those that run.
"""

import asyncio

from ternmq.client.app.failure_log import FailureLog
from ternmq.client.app.handler_run import HandlerRun
from ternmq.client.app.last_attempts import LastAttempts
from ternmq.client.app.subscriber import Subscriber
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger

CANCEL_WAIT_S = 1.0  # For a cancelled handler to clean up.

log = get_logger()


class HandlerLoop:
    """Feeds one handler from one consumer."""

    def __init__(
        self,
        consumer: Consumer,
        subscriber: Subscriber,
        run: HandlerRun,
        limits: LastAttempts,
    ) -> None:
        self._consumer = consumer
        self._subscriber = subscriber
        self._run = run
        self._free = asyncio.Semaphore(subscriber.concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._failures = FailureLog(subscriber, limits)
        self.stuck = 0
        """Threads that are still at a message which timed out."""

    async def run(self) -> None:
        """Until the consumer is closed or this is cancelled; handlers go on."""
        while True:
            await self._free.acquire()
            try:
                unit = await self._next()
            except BaseException as error:
                self._free.release()
                if isinstance(error, TernError):
                    self._say_over(error)
                raise
            if unit is None:
                return
            task = asyncio.create_task(self._handle(unit))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _say_over(self, error: TernError) -> None:
        """Log that no more messages come: the caller of `stop` would learn it only then."""
        log.error(
            "a handler gets no more messages",
            group=self._subscriber.group,
            handler=self._subscriber.name,
            reason=error.message,
        )

    async def drain(self, until: float, hurry: asyncio.Event) -> None:
        """Wait for running handlers, until that moment or `hurry`; then cancel them."""
        self._consumer.stop_pulling()
        hurried = asyncio.create_task(hurry.wait())
        loop = asyncio.get_running_loop()
        while self._running and not hurried.done():
            left = until - loop.time()
            if left <= 0:
                break
            some = asyncio.FIRST_COMPLETED
            await asyncio.wait({*self._running, hurried}, timeout=left, return_when=some)
        hurried.cancel()
        if self._running:
            log.warning(
                "handlers cut off by stopping; their messages are given back",
                group=self._subscriber.group,
                handler=self._subscriber.name,
                running=len(self._running),
            )
            for task in self._running:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCEL_WAIT_S)
        self._failures.sum_up()

    async def _next(self) -> Message | MessageBatch | None:
        subscriber = self._subscriber
        if subscriber.batch_size:
            return await self._consumer.next_batch(
                subscriber.batch_size, wait=subscriber.batch_wait, exact=True
            )
        return await anext(self._consumer, None)

    async def _handle(self, unit: Message | MessageBatch) -> None:
        """Call the handler and settle by how that ends."""
        busy: asyncio.Future[None] | None = None
        try:
            end = await self._run.run(unit)
            busy = end.busy
            if end.error is not None and end.verdict != "ignore":
                self._failures.failed(unit, end)
            self._run.settle(unit, end)
        finally:
            if busy is None:
                self._free.release()
            else:
                self.stuck += 1
                busy.add_done_callback(self._unstuck)
                self._warn_about_stuck()

    def _unstuck(self, _: "asyncio.Future[None]") -> None:
        self.stuck -= 1
        self._free.release()

    def _warn_about_stuck(self) -> None:
        left = self._subscriber.concurrency - self.stuck
        log.warning(
            "a thread is stuck in a handler that timed out" if left else "all threads are stuck",
            group=self._subscriber.group,
            handler=self._subscriber.name,
            stuck=self.stuck,
            left=left,
        )
