"""The id of a producer and the number of its next message: together the message id.

The identity is renewed every hour, so that ids sort by time and lead a search to the right hour.
Numbers are given out once, in order, over all topics. Never shared between processes: a forked
child makes its own.
"""

from ternmq.core.clock import Clock
from ternmq.core.ids import MESSAGE_SEQUENCE_MAX, ProducerId, new_producer_id
from ternmq.core.units import HOUR_MS


class ProducerIdentity:
    """Hands out runs of message numbers."""

    __slots__ = ("_clock", "_next", "_renewed_at_s", "producer")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._renew()

    def take(self, count: int) -> tuple[ProducerId, int]:
        """The producer id and the first of `count` consecutive numbers."""
        old = self._clock.monotonic() - self._renewed_at_s >= HOUR_MS / 1000
        if old or self._next + count > MESSAGE_SEQUENCE_MAX:
            self._renew()
        first = self._next
        self._next += count
        return self.producer, first

    def _renew(self) -> None:
        self.producer = new_producer_id(self._clock.now_ms())
        self._renewed_at_s = self._clock.monotonic()
        self._next = 0
