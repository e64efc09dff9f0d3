"""The buffer that sockets are read into: one per thread, since a loop reads one socket at a time.

Both asyncio's loop and uvloop ask for a buffer, read into it and report in one go, so all
connections of a thread can share it and 10,000 idle peers cost no buffers.
"""

import threading
from typing import TypeAlias

from ternmq.wire.decoder import SHARED_SIZE

Buffer: TypeAlias = bytes | bytearray | memoryview

JOIN_SIZE_MAX = 16 * 1024
"""Up to here header and payload are copied into one buffer; above it copying costs more."""

_thread = threading.local()


def receive_buffer() -> bytearray:
    """This thread's buffer."""
    buffer: bytearray | None = getattr(_thread, "buffer", None)
    if buffer is None:
        buffer = _thread.buffer = bytearray(SHARED_SIZE)
    return buffer
