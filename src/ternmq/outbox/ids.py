"""Message ids for rows: drawn in any thread, never twice, not even by a forked child."""

import threading

from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.client.transport.fork import life
from ternmq.core.clock import Clock
from ternmq.core.ids import id_to_text


class MessageIds:
    """One producer identity of this process, renewed by time and by fork."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._identity = ProducerIdentity(self._clock)
        self._life = life.number

    def take(self) -> str:
        """The next id, 26 characters."""
        if self._life != life.number:
            self._begin()  # A fork copies one thread: nobody else is here yet.
        with self._lock:
            producer, number = self._identity.take(1)
        return id_to_text(producer.message_id(number))
