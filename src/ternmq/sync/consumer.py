"""The blocking consumer: fetches batches from the loop thread, shows them message by message.

Acks from the caller's thread are passed on in bulk. Several threads may share one consumer.
"""

import threading
from collections.abc import Iterator

from ternmq.client.consumer import BATCH_ROWS
from ternmq.client.consumer import Consumer as AsyncConsumer
from ternmq.client.forked import life
from ternmq.client.message import Message, MessageBatch
from ternmq.core.errors import Closed
from ternmq.sync.loop_thread import run


class Consumer:
    """One member of a group, blocking."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._life = life.number
        self._lock = threading.Lock()
        self._messages: Iterator[Message] = iter(())

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
                message = next(self._messages, None)
                if message is not None:
                    return message
                batch = run(self._consumer.next_batch())
                if batch is None:
                    raise StopIteration
                self._messages = iter(batch)

    def batches(self, rows_max: int = BATCH_ROWS) -> Iterator[MessageBatch]:
        """Messages in batches of one topic, as they arrive."""
        while True:
            batch = run(self._consumer.next_batch(rows_max))
            if batch is None:
                return
            yield batch
