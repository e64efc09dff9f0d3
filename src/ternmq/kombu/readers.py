"""What reads for kombu on the loop thread: a consumer for a queue, a broadcast for an exchange.

Each puts what arrives into the connection's line, with the name of the queue it is for, and an
error that ends it likewise. Leases are renewed by the client, however long a task takes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ternmq.client.client import Client
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.model.message import Message
from ternmq.core.errors import DecodeError, TernError
from ternmq.kombu.arrival_queue import ArrivalQueue
from ternmq.kombu.payload import KombuMessage, unpack_payload
from ternmq.sync.loop_thread import loop_thread, run

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message for a queue, or what its reader ended with."""

    queue: str
    payload: KombuMessage | None = None
    message: Message | None = None
    """To be settled; None: of a broadcast."""
    error: Exception | None = None


Arrivals = ArrivalQueue[Arrival]


class Announcer:
    """Puts arrivals in line, and wakes who waits once in a turn of the loop."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._due = False

    def put(self, arrival: Arrival) -> None:
        self._arrivals.put(arrival)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._due = False
        self._arrivals.wake()


class QueueReader:
    """Takes the tasks of one queue."""

    def __init__(self, queue: str, consumer: Consumer, arrivals: Arrivals) -> None:
        self._queue = queue
        self._consumer = consumer
        self._arrivals = Announcer(arrivals)
        self._task: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Returns when the group is joined; raises what keeps it out."""

        async def begin() -> None:
            await self._consumer.start()
            self._task = asyncio.ensure_future(self._read())

        run(begin())

    def set_prefetch(self, prefetch: int) -> None:
        loop_thread().call(lambda: self._consumer.set_prefetch(prefetch))

    def stop(self) -> None:
        """What was not handed to kombu goes back at once."""

        async def end() -> None:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait([self._task], timeout=STOP_S)
            await self._consumer.close()

        run(end())

    async def _read(self) -> None:
        try:
            async for message in self._consumer:
                self._arrivals.put(self._arrival(message))
        except TernError as error:
            self._arrivals.put(Arrival(self._queue, error=error))

    def _arrival(self, message: Message) -> Arrival:
        try:
            payload = unpack_payload(message.body)
        except DecodeError as error:
            message.reject(error=error)
            return Arrival(self._queue)
        if message.attempt > 1:
            info = payload["properties"].setdefault("delivery_info", {})
            info["redelivered"] = True
        return Arrival(self._queue, payload, message)


class BroadcastReader:
    """Reads along what is sent to an exchange that everybody listens to."""

    def __init__(
        self,
        mq: Client,
        topic: str,
        arrivals: Arrivals,
        queues: Callable[[str], list[str]],
    ) -> None:
        """`queues`: who wants a routing key."""
        self._mq = mq
        self._topic = topic
        self._arrivals = Announcer(arrivals)
        self._queues = queues
        self._task: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Returns when nothing is missed any more."""
        began: asyncio.Future[None]

        async def begin() -> None:
            nonlocal began
            began = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._read(began))
            await began

        run(begin())

    def stop(self) -> None:
        task = self._task

        async def end() -> None:
            if task is not None:
                task.cancel()
                await asyncio.wait([task], timeout=STOP_S)

        run(end())

    async def _read(self, began: "asyncio.Future[None]") -> None:
        try:
            async with self._mq.broadcast(self._topic) as every:
                began.set_result(None)
                async for message in every:
                    self._pass_on(message)
        except TernError as error:
            if began.done():
                self._arrivals.put(Arrival("", error=error))
            else:
                began.set_exception(error)

    def _pass_on(self, message: Message) -> None:
        try:
            payload = unpack_payload(message.body)
        except DecodeError:
            return  # Nobody's: a broadcast has no dead letters.
        key = payload["properties"].get("delivery_info", {}).get("routing_key", "")
        for queue in self._queues(key):
            self._arrivals.put(Arrival(queue, unpack_payload(message.body)))
