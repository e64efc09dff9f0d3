"""Bounds what a producer has accepted and not yet got answered: messages and bytes.

`take` is the fast path; who does not fit waits in line, first come first served, or is told
`BufferFull`. A message larger than the whole bound is let through when nothing else is there.
Belongs to one event loop; counts only, holds no messages.
"""

import asyncio
from collections import deque
from dataclasses import dataclass

from ternmq.core.errors import BufferFull


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a client has sent so far; a snapshot."""

    sent: int
    failed: int
    """Certainly not stored."""
    unknown: int
    """Given up without an answer (`SendUnknown`)."""
    buffered: int
    """Accepted and not yet answered, messages."""
    buffered_size: int
    under_way: int
    """Requests sent and not yet answered."""
    repeats: int
    """Requests that were sent again."""


class SendBuffer:
    """Counts messages and bytes against their limits."""

    __slots__ = ("_line", "messages", "messages_max", "size", "size_max")

    def __init__(self, *, messages_max: int, size_max: int) -> None:
        self.messages_max = messages_max
        self.size_max = size_max
        self.messages = 0
        self.size = 0
        self._line: deque[tuple[int, int, asyncio.Future[None]]] = deque()

    def within(self, count: int, size: int) -> bool:
        return self.messages + count <= self.messages_max and self.size + size <= self.size_max

    def fits(self, count: int, size: int) -> bool:
        return self.within(count, size) or not self.messages

    def take(self, count: int, size: int) -> bool:
        """Take room if there is some and no other caller waits for it."""
        if self._line or not self.fits(count, size):
            return False
        self.messages += count
        self.size += size
        return True

    def take_all(self, count: int, size: int) -> bool:
        """Take room for a list: all of it is within the bounds, or nothing is taken."""
        if count > 1 and not self.within(count, size):
            return False
        return self.take(count, size)

    def force(self, count: int, size: int) -> None:
        """Take room that was promised before."""
        self.messages += count
        self.size += size

    def give(self, count: int, size: int) -> None:
        """Give room back and admit waiting callers that fit now, in order."""
        self.messages -= count
        self.size -= size
        assert self.messages >= 0
        line = self._line
        while line:
            wanted, wanted_size, waiter = line[0]
            if not waiter.done():
                if not self.fits(wanted, wanted_size):
                    return
                self.messages += wanted
                self.size += wanted_size
                waiter.set_result(None)
            line.popleft()

    async def wait(self, count: int, size: int, *, timeout: float) -> None:
        """Wait for room and take it; `BufferFull` when none came up in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((count, size, waiter))
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError as error:
            self._leave(count, size, waiter)
            raise self.full(f"and none was freed in {timeout:g} s") from error
        except asyncio.CancelledError:
            self._leave(count, size, waiter)
            raise

    def _leave(self, count: int, size: int, waiter: "asyncio.Future[None]") -> None:
        """Give back what was handed over in the very moment the caller gave up."""
        if waiter.done() and not waiter.cancelled():
            self.give(count, size)
        else:
            waiter.cancel()
            self.give(0, 0)  # Who stood behind may fit.

    def full(self, why: str = "") -> BufferFull:
        return BufferFull(
            f"the send buffer is full ({self.messages} messages, {self.size} bytes are not yet "
            f"answered) {why}: slow down, or raise buffer_messages_max or buffer_size_max"
        )
