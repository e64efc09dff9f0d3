"""Between the loop thread, where messages arrive, and the thread in which kombu handles them.

A queue with a descriptor that is readable while something is in it: Celery's event loop watches
that one, others wait on it. Many that arrive together wake it once. What a reader failed with is in
line like a message.
"""

import select
import socket
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class ArrivalQueue(Generic[T]):
    """First in, first out; `put` from any thread, everything else from one."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)

    def fileno(self) -> int:
        return self._reading.fileno()

    def put(self, item: T) -> None:
        """Only in line: `wake` tells, once for many."""
        self._waiting.append(item)

    def wake(self) -> None:
        """Let who watches look again."""
        try:
            self._writing.send(b"1")
        except OSError:
            return  # Full: it is readable already. Or closed: nobody looks any more.

    def take_all(self) -> list[T]:
        """Everything that is there now."""
        try:
            while len(self._reading.recv(4096)) == 4096:
                pass
        except OSError:
            pass  # Nothing in it.
        found: list[T] = []
        while self._waiting:
            found.append(self._waiting.popleft())
        return found

    def wait(self, seconds: float | None) -> bool:
        """Until there is something to look at; False when the time is over."""
        return bool(self._waiting) or bool(select.select([self._reading], [], [], seconds)[0])

    def close(self) -> None:
        self._reading.close()
        self._writing.close()
