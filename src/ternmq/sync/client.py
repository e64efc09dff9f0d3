"""The blocking client: hands every call to the loop thread and waits.

`send_nowait` does not wait: messages are checked here, put into an inbox, and one wake-up of the
loop takes them all.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack

from ternmq.batch.encoder import Outgoing
from ternmq.client.admin.delays import CancelResult, Delayed
from ternmq.client.client import Client as AsyncClient
from ternmq.client.client import connect as connect_async
from ternmq.client.config import ConnectOptions
from ternmq.client.consuming.consumer import ConsumerOptions
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.producing.accumulator import Row
from ternmq.client.producing.producer import Producer, Stats
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.client.reading.broadcast import BroadcastOptions
from ternmq.client.reading.find import Finding, FindOptions
from ternmq.client.reading.reader import ReadOptions
from ternmq.client.transactions.checker import CheckFunction
from ternmq.client.transactions.detached import DetachedEnding, DetachedOptions, EndOptions
from ternmq.client.transactions.transaction import TransactionOptions
from ternmq.client.transport.fork import life
from ternmq.core.ids import check_name
from ternmq.sync.admin import Admin
from ternmq.sync.broadcast import Broadcast
from ternmq.sync.consumer import Consumer
from ternmq.sync.loop_thread import loop_thread, run
from ternmq.sync.reader import Reader
from ternmq.sync.transaction import Detached, Transaction

T = TypeVar("T")


def connect(url: str, **options: Unpack[ConnectOptions]) -> "Client":
    """Connect now; use it in `with`, or close it yourself. Options: see `ClientConfig`."""
    client = connect_async(url, **options)
    run(_started(client))
    return Client(client)


async def _started(client: AsyncClient) -> None:
    await client


class Inbox:
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
        row, size = self._producer.prepare(body, options)
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


class Client:
    """The blocking `mq`. Made by `connect`; may be shared by threads."""

    def __init__(self, client: AsyncClient) -> None:
        self._mq = client
        self._inbox: Inbox | None = None
        self._life = -1

    @property
    def app(self) -> str:
        return self._mq.app

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave all groups, send what was accepted, close the connections."""
        if self._inbox is not None and self._life == life.number:
            loop_thread().call(self._inbox.empty)
        run(self._mq.close())

    def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> Receipt:
        """Store one message and return its receipt once it is safe."""
        return run(self._mq.send(topic, body, **options))

    def send_many(
        self, topic: str, bodies: Sequence[Any], **options: Unpack[SendOptions]
    ) -> BatchReceipt:
        """Store many messages, split as needed; see `ternmq.Client.send_many`."""
        return run(self._mq.send_many(topic, bodies, **options))

    def confirm(
        self, receipt: Receipt | BatchReceipt, group: str, timeout: float | None = None
    ) -> None:
        """Wait until a group has acked what was sent before; raises `NotConfirmed`."""
        run(self._mq.confirm(receipt, group, timeout))

    def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]:
        """Store messages that have ids of their own, each at most once."""
        return run(self._mq.send_once(topic, rows, broker_group))

    def find(self, topic: str | None = None, **options: Unpack[FindOptions]) -> list[Finding]:
        """Messages by id or by key; see `ternmq.Client.find`."""
        return run(self._mq.find(topic, **options))

    def send_nowait(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> None:
        """Accept one message and return at once; `BufferFull` when there is no room."""
        if self._mq.config.spool is not None:  # In the file when this returns.
            loop_thread().call(lambda: self._mq.send_nowait(topic, body, **options))
            return
        inbox = self._inbox
        if inbox is None or self._life != life.number:
            inbox = self._inbox = Inbox(loop_thread().call(self._mq.sender))
            self._life = life.number
        inbox.put(topic, body, options)

    def cancel(self, message: Delayed) -> CancelResult:
        """Take a delayed message back before it is due; see `ternmq.Client.cancel`."""
        return run(self._mq.cancel(message))

    def reschedule(
        self,
        message: Delayed,
        *,
        at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> CancelResult:
        """Let a delayed message be due at another time."""
        return run(self._mq.reschedule(message, at=at, delay=delay))

    def fire_now(self, message: Delayed) -> CancelResult:
        """Let a delayed message go out at once."""
        return run(self._mq.fire_now(message))

    def transaction(self, **options: Unpack[TransactionOptions]) -> Transaction:
        """Messages that become visible together when the block ends well; use it in `with`."""
        return Transaction(loop_thread().call(lambda: self._mq.transaction(**options)))

    def transaction_checker(self, function: CheckFunction) -> CheckFunction:
        """Let this client answer for the transactions of its application; runs in a thread."""
        return loop_thread().call(lambda: self._mq.transaction_checker(function))

    def detached(self, name: str, **options: Unpack[DetachedOptions]) -> Detached:
        """Stage rows that are committed by name, maybe by another process."""
        return Detached(loop_thread().call(lambda: self._mq.detached(name, **options)))

    def commit_detached(
        self,
        name: str,
        attempts: Sequence[int] = (),
        broker_group: str | None = None,
        **options: Unpack[EndOptions],
    ) -> DetachedEnding:
        """Publish the named attempts once; may be repeated."""
        return run(self._mq.commit_detached(name, attempts, broker_group, **options))

    def abort_detached(
        self,
        name: str,
        attempts: Sequence[int] = (),
        broker_group: str | None = None,
        **options: Unpack[EndOptions],
    ) -> DetachedEnding:
        """Roll back the named attempts that are not published."""
        return run(self._mq.abort_detached(name, attempts, broker_group, **options))

    def look_detached(self, name: str, broker_group: str | None = None) -> DetachedEnding:
        """How an unfenced transaction stands."""
        return run(self._mq.look_detached(name, broker_group))

    def flush(self) -> None:
        """Wait until everything accepted so far is stored or given up."""
        if self._inbox is not None and self._life == life.number:
            loop_thread().call(self._inbox.empty)
        run(self._mq.flush())

    def stats(self) -> Stats:
        return loop_thread().call(self._mq.stats)

    def consumer(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[ConsumerOptions]
    ) -> Consumer:
        """A member of a group; use it in `with`, or `start` and `close` it."""
        return Consumer(
            loop_thread().call(lambda: self._mq.consumer(topics, group=group, **options))
        )

    def read(self, topic: str, **options: Unpack[ReadOptions]) -> Reader:
        """Read a topic without a group; iterate over it or over `.batches()`."""
        return Reader(loop_thread().call(lambda: self._mq.read(topic, **options)))

    def broadcast(self, topic: str, **options: Unpack[BroadcastOptions]) -> Broadcast:
        """Every instance gets every message from now on; use it in `with`."""
        return Broadcast(loop_thread().call(lambda: self._mq.broadcast(topic, **options)))

    @property
    def admin(self) -> Admin:
        """Topics, groups, ledger, status."""
        return Admin(loop_thread().call(lambda: self._mq.admin))

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        """The broker group that an order key lies on now; None while its slot is being moved."""
        return self._mq.slot_owner(topic, order_key)

    def broker_groups(self) -> list[str]:
        """The broker groups that take messages, as far as this client knows."""
        return loop_thread().call(self._mq.broker_groups)

    def taking_groups(self) -> list[str]:
        """Those that new messages go to."""
        return loop_thread().call(self._mq.taking_groups)

    def submit(self, job: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> "Future[T]":
        """Run `job` with the async client on its own loop; does not wait for the result."""
        return asyncio.run_coroutine_threadsafe(job(self._mq), loop_thread().loop)
