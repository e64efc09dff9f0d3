"""The blocking consumer: fetches batches from the loop thread, shows them message by message.

Acks from the caller's thread are passed on in bulk. Several threads may share one consumer. What
was fetched and not shown when its lease is lost (a reset) is not shown any more.
"""

import threading
from collections.abc import Iterator

from ternmq.client.consuming.consumer import BATCH_ROWS
from ternmq.client.consuming.consumer import Consumer as AsyncConsumer
from ternmq.client.model.delivery import Delivery
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.transport.fork import life
from ternmq.core.errors import Closed
from ternmq.sync.loop_thread import loop_thread, run


class Consumer:
    """One member of a group, blocking."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._life = life.number
        self._lock = threading.Lock()
        self._parts: list[tuple[Delivery, int, int]] = []  # Fetched; the last one is next.
        self._delivery: Delivery | None = None
        self._row = self._row_end = 0
        consumer.on_withdraw = self._withdrawn

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def topics(self) -> list[str]:
        return self._consumer.topics

    def start(self) -> "Consumer":
        """Join the group."""
        run(self._consumer.start())
        return self

    def close(self) -> None:
        """Tell what is settled, give the rest back, leave."""
        run(self._consumer.close())

    def stop_pulling(self) -> None:
        """Ask for no more, give back what was not fetched by this side yet; iterating ends."""
        loop_thread().call(self._consumer.stop_pulling)

    def __enter__(self) -> "Consumer":
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def flush(self) -> None:
        """Wait until the brokers have everything that was settled so far."""
        run(self._consumer.flush())

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._life != life.number:  # Before the lock: a thread of the parent may have held it.
            raise Closed("this consumer belongs to the parent process; make one after the fork")
        with self._lock:
            while True:
                while self._row < self._row_end:
                    row, delivery = self._row, self._delivery
                    self._row = row + 1
                    assert delivery is not None
                    if not delivery.settled[row]:  # Else withdrawn meanwhile.
                        return Message(delivery, row)
                if not self._parts:
                    batch = run(self._consumer.next_batch())
                    if batch is None:
                        raise StopIteration
                    self._parts = batch.parts[::-1]
                self._delivery, self._row, self._row_end = self._parts.pop()

    def _withdrawn(self, delivery: Delivery) -> None:
        """On the loop's thread. Rows count as settled here, so a newer delivery shows them."""
        current = [(self._delivery, self._row, self._row_end), *self._parts]
        for held, first, end in current:
            if held is delivery and first < end:
                delivery.settled[first:end] = b"\1" * (end - first)

    @property
    def closed(self) -> bool:
        return self._consumer.closed

    def next_batch(
        self, rows_max: int = BATCH_ROWS, *, wait: float = 0.0, exact: bool = False
    ) -> MessageBatch | None:
        """The next batch; None once the consumer is closed. See `ternmq.Consumer.next_batch`."""
        return run(self._consumer.next_batch(rows_max, wait=wait, exact=exact))

    def batches(self, rows_max: int = BATCH_ROWS) -> Iterator[MessageBatch]:
        """Messages in batches of one topic, as they arrive."""
        while True:
            batch = run(self._consumer.next_batch(rows_max))
            if batch is None:
                return
            yield batch
