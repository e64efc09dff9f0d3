"""A pool of locked memory from which logs are written (R26), for `flush = "async"`.

One region is taken at the start, filled with pages at once and locked (`mlock`), so that the kernel
never takes them away. What a round has to write is copied there, batch behind batch, and goes to
the operating system from there in one `pwrite` for each filling. On a machine that is short of
memory the writer then never waits for a page of its own to come back, whatever became of the
buffers that the sockets filled.

It costs one copy of every byte, and nothing is answered earlier for it: a message counts when the
operating system has it, as without the pool. Nothing is ever left in the pool when a write returns,
so nothing is lost with the process.
"""

import ctypes
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from ternmq.core.errors import BadConfig
from ternmq.storage.files.disk import Buffer, RealDisk, RealFile, translated
from ternmq.storage.files.paths import LOG_SUFFIX


class WritePool:
    """Locked memory, for one write at a time."""

    def __init__(self, size: int) -> None:
        self.lock = threading.Lock()
        memory = mmap.mmap(-1, size)
        self._locked = ctypes.c_char.from_buffer(memory)  # Keeps the region where it is.
        self._view = memoryview(memory)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mlock(ctypes.c_void_p(ctypes.addressof(self._locked)), ctypes.c_size_t(size)):
            reason = os.strerror(ctypes.get_errno())
            raise BadConfig(
                f"write_pool: {size} bytes of memory cannot be locked ({reason}); raise the limit "
                "(ulimit -l, LimitMEMLOCK= of systemd), or lower write_pool"
            )

    def filled(self, buffers: Sequence[Buffer]) -> Iterator[memoryview]:
        """The bytes of the buffers, one filling after the other. Hold the lock meanwhile."""
        view, size = self._view, len(self._view)
        at = 0
        for buffer in buffers:
            rest = memoryview(buffer)
            while rest:
                step = min(len(rest), size - at)
                view[at : at + step] = rest[:step]
                rest, at = rest[step:], at + step
                if at == size:
                    yield view
                    at = 0
        if at:
            yield view[:at]


class PooledFile(RealFile):
    """A log whose writes go through the pool."""

    __slots__ = ("_pool",)

    def __init__(self, path: Path, fd: int, pool: WritePool) -> None:
        super().__init__(path, fd)
        self._pool = pool

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        done = 0
        try:
            with self._pool.lock:
                for filling in self._pool.filled(buffers):
                    step = os.pwrite(self._fd, filling, offset + done)
                    done += step
                    if step < len(filling):
                        break
        except OSError as error:
            raise translated(error, "writing", self.path) from error
        return done


class PooledDisk(RealDisk):
    """The machine's file systems, with a pool for logs."""

    def __init__(self, pool: WritePool) -> None:
        self._pool = pool

    def open(self, path: Path, *, create: bool) -> RealFile:
        if path.suffix != LOG_SUFFIX:
            return super().open(path, create=create)
        return PooledFile(path, self.descriptor(path, create=create), self._pool)
