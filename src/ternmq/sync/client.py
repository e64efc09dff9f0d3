"""The blocking client: hands every call to the loop thread and waits.

`send_nowait` does not wait: messages are checked here, put into a queue, and one wake-up of the
loop takes them all. Calls that only wait for those of `ternmq.Client` are generated
(`client_calls.py`).
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar, Unpack

from ternmq.client.client import Client as AsyncClient
from ternmq.client.client import connect as connect_async
from ternmq.client.config import ConnectOptions
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.producing.accumulator import Row
from ternmq.client.producing.producer import Producer
from ternmq.client.tracing import TRACING, sending_one
from ternmq.client.transport.fork import life
from ternmq.core.ids import check_name
from ternmq.sync.client_calls import ClientCalls
from ternmq.sync.loop_thread import loop_thread, run

T = TypeVar("T")


def connect(url: str, **options: Unpack[ConnectOptions]) -> "Client":
    """Connect now; use it in `with`, or close it yourself. Options: see `ClientConfig`."""
    client = connect_async(url, **options)
    run(client.__aenter__())
    return Client(client)


class OneWayQueue:
    """One-way messages on their way from any thread to the loop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._lock = threading.Lock()
        self._rows: deque[tuple[str, Row, int]] = deque()
        self._size = 0
        self._woken = False

    def put(self, topic: str, body: Any, options: SendOptions) -> None:
        """Check and accept one message; `BufferFull` when there is no room."""
        check_name("topic", topic)
        row, size = self._producer.prepare(topic, body, options)
        buffer = self._producer.buffer
        with self._lock:
            alone = not self._rows and not buffer.messages
            if not alone and not buffer.within(len(self._rows) + 1, self._size + size):
                raise buffer.full()
            self._rows.append((topic, row, size))
            self._size += size
            if self._woken:
                return
            self._woken = True
        self._producer.loop.call_soon_threadsafe(self.empty)

    def empty(self) -> None:
        """On the loop: give everything to the producer."""
        with self._lock:
            rows, self._rows = self._rows, deque()
            self._size = 0
            self._woken = False
            for topic, row, size in rows:
                self._producer.put(topic, row, size)


class Client(ClientCalls):
    """The blocking `mq`. Made by `connect`; may be shared by threads."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._queue: OneWayQueue | None = None
        self._life = -1

    def __enter__(self) -> "Client":
        return self

    def close(self) -> None:
        """Leave all groups, send what was accepted, close the connections."""
        self._empty_queue()
        super().close()

    def send_nowait(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> None:
        """Accept one message and return at once; `BufferFull` when there is no room."""
        if self._mq.config.spool is not None:  # In the file when this returns.
            loop_thread().call(lambda: self._mq.send_nowait(topic, body, **options))
        elif TRACING.tracer is None:
            self._put(topic, body, options)
        else:
            with sending_one(TRACING.tracer, topic, options):
                self._put(topic, body, options)

    def _put(self, topic: str, body: Any, options: SendOptions) -> None:
        queue = self._queue
        if queue is None or self._life != life.number:
            queue = self._queue = OneWayQueue(loop_thread().call(self._mq.sender))
            self._life = life.number
        queue.put(topic, body, options)

    def flush(self) -> None:
        """Wait until everything accepted so far is stored or given up."""
        self._empty_queue()
        super().flush()

    def _empty_queue(self) -> None:
        if self._queue is not None and self._life == life.number:
            loop_thread().call(self._queue.empty)

    def submit(self, job: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run `job` with the async client on its own loop; does not wait for the result."""
        return asyncio.run_coroutine_threadsafe(job(self._mq), loop_thread().loop)
