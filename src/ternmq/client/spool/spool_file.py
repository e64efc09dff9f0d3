"""The file of a spool: messages that were accepted, which group each was given to, what is done.

An append-only `SegmentedLog`. Each record has a head (magic, size, CRC-32C, kind) and MessagePack:

| kind | says |
|---|---|
| MESSAGE | topic, message id, content |
| GIVEN | the messages from one offset to another go to this broker group; written before the send |
| DONE | everything below this offset is stored or was refused to its sender |

Records are handed to the operating system before a call returns, so a killed process loses none; a
machine that dies may lose the last second or so (`sync`). A start reads everything again: a torn
tail is cut, damage before it is reported and nothing is deleted. One process at a time, by a lock
on the directory. A small file is kept in reserve: when the disk is full, giving it up makes room
for the notes that sending needs, and sending makes room for the rest. Synchronous, no network.
"""

import os
import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from crc32c import crc32c

from ternmq.core.errors import BadConfig, BufferFull, Corrupt, DiskFull
from ternmq.core.units import KIB, MIB
from ternmq.storage.files.disk import Disk, RealDisk, write_all
from ternmq.storage.log.segmented_log import SegmentedLog

HEAD = struct.Struct("<IIIB3x")
MAGIC = 0x4C505354  # "TSPL"
MESSAGE, GIVEN, DONE = 1, 2, 3
SEGMENT_SIZE = 16 * MIB
RECORD_SIZE_MAX = 80 * MIB
LOCK_NAME = "lock"
RESERVE_NAME = "reserve"
RESERVE_SIZE = 256 * KIB


@dataclass(slots=True)
class SpoolEntry:
    """One spooled message."""

    offset: int
    end: int
    topic: str
    id: bytes
    content: bytes
    broker_group: str | None = None


class SpoolFile:
    """What one process has accepted and not yet got stored."""

    def __init__(self, directory: Path, *, size_max: int, disk: Disk | None = None) -> None:
        self.size_max = size_max
        self._disk: Disk = disk or RealDisk()
        self._disk.mkdir(directory)
        self._lock = _take_lock(directory)
        self._log = SegmentedLog(self._disk, directory, segment_size=SEGMENT_SIZE)
        self._reserve = directory / RESERVE_NAME
        self._keep_reserve()
        self.done = self._log.start
        """Everything before this offset is settled."""

    @property
    def size(self) -> int:
        """Bytes from the first message that is not settled."""
        return self._log.end - self.done

    # Writing.

    def put(self, topic: str, id: bytes, content: bytes) -> SpoolEntry:
        """Accept one message; `BufferFull` when the spool is."""
        record = _record(MESSAGE, [topic, id, content])
        if self.size + len(record) > self.size_max and self.size:
            raise BufferFull(
                f"the spool holds {self.size} bytes that no broker has taken yet; raise "
                "spool_size_max, or wait until a broker is back"
            )
        offset = self._append(record)
        return SpoolEntry(offset, offset + len(record), topic, id, content)

    def give(self, first: int, end: int, broker_group: str) -> None:
        """Where the messages in between go; before they are sent for the first time."""
        self._note(_record(GIVEN, [first, end, broker_group]))

    def settle(self, end: int) -> None:
        """Nothing below `end` is needed any more.

        Files go before that is noted: on a full disk this is what makes room again. A note that
        cannot be written costs a repeat after the next start, which the broker recognises.
        """
        self.done = end
        if self._log.drop_before(end):
            self._keep_reserve()
        self._note(_record(DONE, [end]))

    def _note(self, record: bytes) -> None:
        """Append what is needed to get rid of messages, by the reserve if there is no room."""
        try:
            self._append(record)
        except DiskFull:
            if not self._disk.exists(self._reserve):
                raise
            self._disk.unlink(self._reserve)
            self._append(record)

    def _keep_reserve(self) -> None:
        if self._disk.exists(self._reserve):
            return
        file = self._disk.open(self._reserve, create=True)
        try:
            write_all(file, [bytes(RESERVE_SIZE)], 0)
        except DiskFull:
            self._disk.unlink(self._reserve)
        finally:
            file.close()

    def sync(self) -> None:
        """Onto the disk; for a thread."""
        self._log.sync()

    def _append(self, record: bytes) -> int:
        plan = self._log.plan()
        offset = plan.place(record)
        self._log.write(plan, sync=False)
        return offset

    # Starting and ending.

    def recover(self) -> list[SpoolEntry]:
        """What an earlier process left, in order; cuts a torn tail."""
        entries: deque[SpoolEntry] = deque()
        given: deque[tuple[int, int, str]] = deque()
        for offset, end, kind, payload in self._records():
            if kind == MESSAGE:
                topic, id, content = payload
                entries.append(SpoolEntry(offset, end, topic, id, content))
            elif kind == GIVEN:
                given.append(tuple(payload))
            elif kind == DONE:
                self.done = max(self.done, payload[0])
                while entries and entries[0].offset < self.done:
                    entries.popleft()
                while given and given[0][1] <= self.done:
                    given.popleft()
        left = list(entries)
        offsets = [entry.offset for entry in left]
        for first, last, group in given:
            for entry in left[bisect_left(offsets, first) : bisect_left(offsets, last)]:
                entry.broker_group = group
        return left

    def _records(self) -> "Iterator[tuple[int, int, int, list[Any]]]":
        log = self._log
        offset = log.start
        while offset < log.end:
            found = self._record_at(offset)
            if found is None:
                self._cut_tail(offset)
                return
            end, kind, payload = found
            yield offset, end, kind, payload
            offset = end

    def _record_at(self, offset: int) -> tuple[int, int, list[Any]] | None:
        left = self._log.end - offset
        if left < HEAD.size:
            return None
        magic, size, checksum, kind = HEAD.unpack(self._log.read(offset, HEAD.size))
        if magic != MAGIC or size > min(left - HEAD.size, RECORD_SIZE_MAX):
            return None
        data = self._log.read(offset + HEAD.size, size)
        if crc32c(data, kind) != checksum:
            return None
        return offset + HEAD.size + size, kind, msgspec.msgpack.decode(data)

    def _cut_tail(self, offset: int) -> None:
        """A write that a crash tore is the last thing in the log; anything else is damage."""
        rest = self._log.read(offset, self._log.end - offset)
        at = rest.find(MAGIC.to_bytes(4, "little"), 1)
        while at >= 0:
            if self._record_at(offset + at) is not None:
                raise Corrupt(
                    f"the spool {self._log.directory} is damaged at byte {offset}, before messages "
                    "that are whole: move the directory away, and keep it",
                    offset=offset,
                )
            at = rest.find(MAGIC.to_bytes(4, "little"), at + 1)
        self._log.cut(offset)

    def close(self) -> None:
        self._log.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    abandon = close  # A forked child closes its copies; the parent keeps the lock.


def _record(kind: int, payload: list[Any]) -> bytes:
    data = msgspec.msgpack.encode(payload)
    return HEAD.pack(MAGIC, len(data), crc32c(data, kind), kind) + data


def _take_lock(directory: Path) -> int:
    try:
        import fcntl  # Windows has none; only who wants a spool needs it.
    except ImportError:
        raise BadConfig(
            "a spool needs a POSIX system; send without one, or through an outbox"
        ) from None
    try:
        handle = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise BadConfig(f"cannot use {directory} as a spool: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise BadConfig(
            f"the spool {directory} is in use by another process; give each its own directory"
        ) from error
    return handle
