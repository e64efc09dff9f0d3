"""What `ack`, `retry` and `reject` return: free when ignored, awaited to be sure.

In an ordered group an outcome that comes after the lease never counts, nor does a reject anywhere:
there the receipt knows which rows it is about and says so (`LeaseLost`). Elsewhere a late ack
counts unless another consumer has the message, and one receipt serves all.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ternmq.client.consuming.ack_sender import AckSender
from ternmq.core.errors import LeaseLost

FlushAcks = Callable[[], Awaitable[None]]


class Flushing:
    """Awaiting this sends what is settled and waits until the broker has it."""

    __slots__ = ("_flush",)

    def __init__(self, flush: FlushAcks) -> None:
        self._flush = flush

    def __await__(self) -> Generator[Any, None, None]:
        return self._flush().__await__()


class RowsReceipt:
    """A receipt for rows whose outcome may not count: (lease, first sequence, end)."""

    __slots__ = ("_acks", "_flush", "_rows")

    def __init__(self, flush: FlushAcks, acks: AckSender, rows: list[tuple[int, int, int]]) -> None:
        self._flush = flush
        self._acks = acks
        self._rows = rows

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._flush().__await__()
        if self._acks.came_late(self._rows):
            raise LeaseLost(
                "it came too late: the lease of the message was over, so its outcome does not "
                "count, and another consumer gets the message or has it; storage that refuses a "
                "smaller message.fence is safe from what this one wrote"
            )
