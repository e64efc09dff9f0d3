"""The blocking consumer: fetches batches from the loop thread, shows them message by message.

Acks from the caller's thread are passed on in bulk. Several threads may share one consumer. What
was fetched and not shown when its lease is lost (a reset) or over is not shown any more. Calls that
only wait for those of `ternmq.Consumer` are generated (`consumer_calls.py`).
"""

import threading
from collections.abc import Iterator

from ternmq.client.consuming.clock_pace import ClockPace
from ternmq.client.consuming.consumer import BATCH_ROWS
from ternmq.client.consuming.consumer import Consumer as AsyncConsumer
from ternmq.client.model.delivery import BACK, Delivery
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.transport.fork import life
from ternmq.core.errors import Closed
from ternmq.sync.consumer_calls import ConsumerCalls


class Consumer(ConsumerCalls):
    """One consumer of a group, blocking. Use it in `with`, or `start` and `close` it."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        super().__init__(consumer)
        self._life = life.number
        self._lock = threading.Lock()
        self._parts: list[tuple[Delivery, int, int]] = []  # Fetched; the last one is next.
        self._delivery: Delivery | None = None
        self._row = self._row_end = self._look_at = 0
        self._pace = ClockPace(ordered=consumer.ordered)
        consumer.watch(self._withdrawn)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        if self._life != life.number:  # Before the lock: a thread of the parent may have held it.
            raise Closed("this consumer belongs to the parent process; make one after the fork")
        with self._lock:
            while True:
                while self._row < self._row_end:
                    row, delivery = self._row, self._delivery
                    assert delivery is not None
                    if row == self._look_at and not self._look(delivery):
                        continue
                    self._row = row + 1
                    if not delivery.settled[row]:  # Else withdrawn meanwhile.
                        return Message(delivery, row)
                if not self._parts:
                    batch = self.next_batch()
                    if batch is None:
                        raise StopIteration
                    self._parts = batch.parts[::-1]
                self._delivery, self._row, self._row_end = self._parts.pop()
                self._look_at = self._row

    def _look(self, delivery: Delivery) -> bool:
        """At the clock: is the lease of these rows not over? Else they go back, unseen."""
        now = self._consumer.now()
        if delivery.until > now:
            self._look_at = self._row + self._pace.rows(now)
            return True
        rows, self._row = (self._row, self._row_end), self._row_end
        delivery.source.settle_later(delivery, rows, BACK)
        return False

    def batches(self, rows_max: int = BATCH_ROWS) -> Iterator[MessageBatch]:
        """Messages in batches of one topic, as they arrive; about `rows_max` at most."""
        while (batch := self.next_batch(rows_max)) is not None:
            yield batch

    def _withdrawn(self, delivery: Delivery) -> None:
        """On the loop's thread. Rows count as settled here, so a newer delivery shows them."""
        current = [(self._delivery, self._row, self._row_end), *self._parts]
        for held, first, end in current:
            if held is delivery and first < end:
                delivery.settled[first:end] = b"\1" * (end - first)
