"""kombu's bookkeeping of what is in hand, on leases of ours: acks, rejects, requeues.

What is in hand when a channel closes goes back at once and uncounted. What a process had that was
killed comes again when its lease is lost, within seconds.
"""

from typing import Any, Protocol

from kombu.transport import virtual

REJECTED = "the task was rejected"


class Leased(Protocol):
    """A message in hand: of a consumer, or pulled alone."""

    def ack(self) -> object: ...

    def reject(self, reason: str = ..., /) -> object: ...

    def release(self) -> object: ...


class LeasedMessages(virtual.QoS):  # type: ignore[misc]
    """What one channel has in hand, in the place of kombu's own bookkeeping."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._leased: dict[str, Leased] = {}

    def lease(self, delivery_tag: str, message: Leased) -> None:
        """A message is in hand under that tag."""
        self._leased[delivery_tag] = message

    def ack(self, delivery_tag: str) -> None:
        message = self._leased.pop(delivery_tag, None)
        if message is not None:
            message.ack()
        super().ack(delivery_tag)
        self.channel.freed()

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        message = self._leased.pop(delivery_tag, None)
        if message is not None and requeue:
            message.release()
        elif message is not None:
            message.reject(REJECTED)
        self._quick_ack(delivery_tag)
        self.channel.freed()

    def restore_unacked(self) -> list[Any]:
        leased, self._leased = self._leased, {}
        for message in leased.values():
            message.release()
        self._delivered.clear()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        self._on_collect.cancel()
        self._flush()
        self.restore_unacked()
        self._delivered.restored = True
