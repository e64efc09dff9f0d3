"""The bytes of stored batches: from memory, from the page cache, or from the disk by a thread.

What was stored last is kept in memory as it was written, up to `cache_size`, so consumers that
keep up never touch a file. What lies further back is read without waiting where the kernel has it
cached; only cold data goes to reader threads, so a lagging consumer cannot stall a producer. Reads
of neighbouring batches are joined into one. Bytes are handed out as they lie on the disk (R22).
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ternmq.batch.half import restamped
from ternmq.batch.layout import Buffer
from ternmq.core.units import MIB
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.messages.message_log import Append, MessageLog

T = TypeVar("T")
CACHE_SIZE = 64 * MIB
ENTRY_SIZE = 384
"""What a batch takes in memory besides its bytes; of small ones that is most of it."""
READ_SIZE_MAX = 4 * MIB
READER_THREADS = 4


class Fetcher:
    """Reads batches by their place in the message log."""

    def __init__(self, messages: MessageLog, *, cache_size: int = CACHE_SIZE) -> None:
        self._messages = messages
        self._cache: dict[int, Buffer] = {}
        self._order: deque[int] = deque()
        self._cached = 0
        self._in_use: Counter[int] = Counter()  # Lowest offsets of what threads read right now.
        self._cache_size = cache_size
        self.read_size = 0
        """Bytes that were not in memory and were read from files."""
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="tern-reader")

    def remember(self, appends: Sequence[Append]) -> None:
        """Keep what was just stored."""
        for append in appends:
            self._cache[append.offset] = append.batch
            self._order.append(append.offset)
            self._cached += len(append.batch) + ENTRY_SIZE
        while self._cached > self._cache_size:
            self._cached -= len(self._cache.pop(self._order.popleft())) + ENTRY_SIZE

    def keep(self, entry: ConsumeEntry, batch: Buffer) -> None:
        """Remember a batch that was read to look into it."""
        if entry.offset not in self._cache and not entry.location:
            self._cache[entry.offset] = batch
            self._order.append(entry.offset)
            self._cached += len(batch) + ENTRY_SIZE

    def now(self, entries: Sequence[ConsumeEntry]) -> list[Buffer] | None:
        """The batches, if none of them needs the disk."""
        found: list[Buffer] = []
        cache = self._cache
        for entry in entries:
            batch = cache.get(entry.offset)
            if batch is None:
                break
            found.append(restamped(batch, entry[0], entry[4]) if entry[7] else batch)
        if len(found) == len(entries):
            return found
        for offset, size, run in joined(entries[len(found) :]):
            block = self._messages.read_nowait(offset, size)
            if block is None:
                return None
            self.read_size += size
            found += _split(block, offset, run)
        return found

    async def later(self, entries: Sequence[ConsumeEntry]) -> list[Buffer]:
        """The batches, read by a thread; raises `Corrupt` where they are damaged."""
        loop = asyncio.get_running_loop()
        lowest = min((entry.offset for entry in entries), default=0)
        self._in_use[lowest] += 1
        self.read_size += sum(entry.size for entry in entries)
        try:
            return await loop.run_in_executor(self._readers, self._read, list(entries))
        finally:
            self._in_use[lowest] -= 1
            if not self._in_use[lowest]:
                del self._in_use[lowest]

    def reading_below(self, offset: int) -> bool:
        """Is a thread reading something that lies below?"""
        return any(lowest < offset for lowest in self._in_use)

    async def run(self, job: Callable[[], T]) -> T:
        """Any other blocking read, on the same threads."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, job)

    def close(self) -> None:
        self._readers.shutdown(wait=True, cancel_futures=True)

    def _read(self, entries: list[ConsumeEntry]) -> list[Buffer]:
        found: list[Buffer] = []
        for offset, size, run in joined(entries):
            found += _split(self._messages.read(offset, size), offset, run)
        return found


def joined(entries: Sequence[ConsumeEntry]) -> list[tuple[int, int, list[ConsumeEntry]]]:
    """Entries that follow each other in the log become one read: offset, size, entries."""
    runs: list[tuple[int, int, list[ConsumeEntry]]] = []
    for entry in entries:
        if runs:
            offset, size, run = runs[-1]
            if offset + size == entry.offset and size + entry.size <= READ_SIZE_MAX:
                run.append(entry)
                runs[-1] = (offset, size + entry.size, run)
                continue
        runs.append((entry.offset, entry.size, [entry]))
    return runs


def _split(block: Buffer, offset: int, run: list[ConsumeEntry]) -> list[Buffer]:
    if len(run) == 1 and not run[0].location:
        return [block]
    view = memoryview(block)
    pieces = [view[entry.offset - offset : entry.offset - offset + entry.size] for entry in run]
    return [
        restamped(piece, entry.base_sequence, entry.stored_at_ms) if entry.location else piece
        for entry, piece in zip(run, pieces, strict=True)
    ]
