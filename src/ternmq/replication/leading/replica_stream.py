"""What one replica is sent: the bytes of every log from where it stands, in order, without gaps.

Each log is a `Stream` with a window of bytes that are sent and not answered. A replica that has
everything is *live*: the buffers of a round go out as they are, while our own disk works. One that
is behind is read for from the disk, in large pieces, by a reader thread, until it has caught up.
Which of the two is decided piece by piece: what continues the stream is sent from memory, else from
disk, and disk reads end where the queue in memory begins.

Never waits, owns no task; a read that comes back after the end is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.rpc.buffers import Buffer
from ternmq.rpc.peer import Peer
from ternmq.wire.messages.replication import REPLICATE, REPLICATE_SYNC
from ternmq.wire.numbers import Command

WINDOW = 16 * MIB
"""Bytes of one log that may be on their way to one replica."""
PIECE = MIB
READ_SIZE = 4 * MIB
QUEUE_MAX = 64 * MIB
"""Bytes that wait in memory for room in the window; beyond it they are read from disk later."""
MARK_DELAY_S = 0.005
"""A mark that moved waits this long for bytes that can carry it."""

log = get_logger()

_REPLICATE = int(Command.REPLICATE)


class LogSource(Protocol):
    """A log as its master has it."""

    @property
    def start_offset(self) -> int: ...

    def read_raw(self, offset: int, size: int) -> bytes:
        """Written bytes, as stored; blocks."""


class StreamMarks(Protocol):
    """What the master knows of a log."""

    def mark(self, log: int) -> int:
        """Everything below counts."""

    def written(self, log: int) -> int:
        """Everything below is on the master's disk."""


class _StreamPiece(NamedTuple):
    offset: int
    size: int
    buffers: list[Buffer]
    sync: bool


class Stream:
    """One log on its way to one replica."""

    def __init__(self, number: int, source: LogSource, marks: StreamMarks, send: "Send") -> None:
        self._number = number
        self._source = source
        self._marks = marks
        self._send = send
        self._queue: deque[_StreamPiece] = deque()
        self._queued = 0
        self._reading = False
        self.started = False
        self.sent = 0
        self.acked = 0
        self.sent_mark = 0
        """The mark that was sent last."""

    def start(self, offset: int) -> None:
        self.started = True
        self.sent = self.acked = offset
        self.pump()

    def offer(self, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        """A round's bytes: queued if they continue what is sent or queued, else read later."""
        tail = self._queue[-1] if self._queue else None
        if not self.started or offset != (tail.offset + tail.size if tail else self.sent):
            return
        for piece in _pieces(offset, buffers, sync):
            self._queue.append(piece)
            self._queued += piece.size
        self.pump()
        if self._queued > QUEUE_MAX:
            self._queue.clear()
            self._queued = 0

    def answered(self, end: int) -> None:
        self.acked = max(self.acked, end)
        self.pump()

    def pump(self) -> None:
        """Send as much as the window allows."""
        if not self.started or self._reading:
            return
        while self.sent - self.acked < WINDOW:
            if self._queue and self._queue[0].offset == self.sent:
                piece = self._queue.popleft()
                self._queued -= piece.size
                self._push(piece.buffers, piece.size, sync=piece.sync)
                continue
            until = self._queue[0].offset if self._queue else self._marks.written(self._number)
            if self.sent < until:
                self._read(min(READ_SIZE, until - self.sent))
            return

    def _read(self, size: int) -> None:
        self._reading = True
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(None, self._source.read_raw, self.sent, size)
        reading.add_done_callback(self._read_done)

    def _read_done(self, reading: "asyncio.Future[bytes]") -> None:
        self._reading = False
        if reading.cancelled():
            return
        error = reading.exception()
        if error is not None:
            self._send.failed(error)
            return
        try:
            self._send_read(reading.result())
        except Exception as bug:  # It would wait for these bytes for ever.
            self._send.failed(bug)

    def _send_read(self, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            piece = memoryview(data)[at : at + PIECE]
            self._push([piece], len(piece), sync=True)
        self.pump()

    def _push(self, buffers: list[Buffer], size: int, *, sync: bool) -> None:
        offset, self.sent = self.sent, self.sent + size
        self._head(offset, buffers, REPLICATE_SYNC if sync else 0)

    def tell(self) -> None:
        """Send the mark if it moved and no bytes have carried it."""
        if self.started and self.sent_mark < self._marks.mark(self._number):
            self._head(self.sent, [], 0)

    def _head(self, offset: int, buffers: list[Buffer], flags: int) -> None:
        self.sent_mark = self._marks.mark(self._number)
        start = self._source.start_offset
        self._send.push(offset, self.sent_mark, start, self._number, flags, buffers)


class Send(Protocol):
    """Where a stream's bytes go."""

    def push(
        self, offset: int, safe: int, start: int, log: int, flags: int, buffers: list[Buffer]
    ) -> None: ...

    def failed(self, error: BaseException) -> None: ...


class ReplicaStream:
    """One replica as its master sees it."""

    def __init__(
        self, peer: Peer, member: str, epoch: int, logs: Mapping[int, LogSource], marks: StreamMarks
    ) -> None:
        self.peer = peer
        self.member = member
        self._epoch = epoch
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.streams = {
            number: Stream(number, source, marks, self) for number, source in logs.items()
        }

    def push(
        self, offset: int, safe: int, start: int, log: int, flags: int, buffers: list[Buffer]
    ) -> None:
        head = REPLICATE.pack(self._epoch, offset, safe, start, log, flags)
        self.peer.push(_REPLICATE, head, *buffers)

    def failed(self, error: BaseException) -> None:
        """What the replica needs cannot be read: it may have more luck with another master."""
        known = isinstance(error, TernError)
        log.error(
            "cannot read for a replica" if known else "sending to a replica failed by a bug",
            member=self.member,
            error=repr(error),
            exc_info=None if known else error,
        )
        reason = (
            error if isinstance(error, TernError) else TernError("reading for a replica failed")
        )
        self.peer.close(reason)

    def tell_soon(self) -> None:
        """A mark moved; if no bytes carry it soon, it is sent alone."""
        if self._timer is None:
            self._timer = self._loop.call_later(MARK_DELAY_S, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if self.peer.closed:
            return
        try:
            for stream in self.streams.values():
                stream.tell()
        except Exception as bug:
            self.failed(bug)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for stream in self.streams.values():
            stream.started = False


def _pieces(offset: int, buffers: list[Buffer], sync: bool) -> list[_StreamPiece]:
    """Buffers in groups that fit well into frames."""
    found: list[_StreamPiece] = []
    group: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if group and size + len(buffer) > PIECE:
            found.append(_StreamPiece(offset, size, group, sync))
            offset, size, group = offset + size, 0, []
        group.append(buffer)
        size += len(buffer)
    if group:
        found.append(_StreamPiece(offset, size, group, sync))
    return found
