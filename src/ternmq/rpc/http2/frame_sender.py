"""The sending half of one connection: frames of what streams have to send, as windows allow.

Streams take turns, a frame each. One whose own window is used up rests until that grows; when the
window of the connection is used up all rest, in their order. `pump` never makes more than a
quarter of a megabyte at once: what the socket does not take is not made. Pure.
"""

from collections.abc import Callable

from ternmq.rpc.http2.answer_heads import TABLE_UNUSED
from ternmq.rpc.http2.frame_allowance import FOR_CALL, FOR_DATA, FrameAllowance
from ternmq.rpc.http2.frames import (
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE_MAX,
    WINDOW_AT_FIRST,
    FaultCode,
    FrameKind,
    pack_head,
    reset_frame,
    window_frame,
)
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.http2.stream import Http2Stream

CLOSED_KEPT = 1_000
"""Streams that ended lately: what was on its way to them is passed over."""
PUMP_SIZE = 256 * 1024
_DATA, _HEADERS = int(FrameKind.DATA), int(FrameKind.HEADERS)
_LAST = END_HEADERS | END_STREAM


class FrameSender:
    """Streams of one connection, and what goes out for them."""

    def __init__(
        self, limits: CallLimits, held: HeldBytes, wake: Callable[[], None], now: float
    ) -> None:
        """`wake`: there is something to be sent; whoever listens calls `pump` soon."""
        self._limits = limits
        self._held = held
        self._wake = wake
        self._allowance = FrameAllowance(now)
        self._out: list[bytes | memoryview] = []
        self._ready: dict[Http2Stream, None] = {}
        self._resting: dict[Http2Stream, None] = {}
        """Their own window is used up."""
        self._queued: dict[Http2Stream, None] = {}
        """The window of the connection is."""
        self._closed: dict[int, bool] = {}
        """Streams that ended lately; True: the other side may not know yet."""
        self._send_left = WINDOW_AT_FIRST
        self._send_left_at_first = WINDOW_AT_FIRST
        self._send_frame_max = FRAME_SIZE_MAX
        self._table_changed = False
        self.streams: dict[int, Http2Stream] = {}
        self.sent = 0
        """Bytes of answers that went out."""

    @property
    def has_more(self) -> bool:
        """`pump` would make frames."""
        return bool(self._out or self._ready or (self._queued and self._send_left > 0))

    @property
    def waiting(self) -> bool:
        """Answers wait for the other side to make room."""
        return bool(self._resting or self._queued)

    # What streams ask.

    def ready(self, stream: Http2Stream, size: int) -> None:
        self._held.answers += size
        if stream not in self._resting and stream not in self._queued:
            if not self._ready and not self._out:
                self._wake()
            self._ready[stream] = None

    def credit(self, stream: Http2Stream, size: int) -> None:
        if stream.ended or stream.closed:
            return
        stream.credited += size
        if stream.credited >= self._limits.window // 2:
            self._send(window_frame(stream.number, stream.credited))
            stream.receive_left += stream.credited
            stream.credited = 0

    def reset(self, stream: Http2Stream, code: FaultCode) -> None:
        if not stream.closed:
            self._close(stream, open_there=not stream.ended)
            self._send(reset_frame(stream.number, code))

    # Frames.

    def pump(self) -> list[bytes | memoryview]:
        """Frames to be written now; `has_more` says whether to ask again."""
        made = 0
        while self._queued and self._send_left > 0 and made < PUMP_SIZE:
            made += self._pump_stream(_first(self._queued))
        while self._ready and made < PUMP_SIZE:
            made += self._pump_stream(_first(self._ready))
        out, self._out = self._out, []
        return out

    def _send(self, frame: bytes) -> None:
        if not self._out and not self._ready:
            self._wake()
        self._out.append(frame)

    def _head_frame(self, number: int, flags: int, block: bytes) -> bytes:
        if self._table_changed:
            self._table_changed = False
            block = TABLE_UNUSED + block
        return pack_head(len(block), _HEADERS, flags, number) + block

    def _pump_stream(self, stream: Http2Stream) -> int:
        """One frame of data at most; returns how many bytes were made."""
        number, size = stream.number, stream.pending_size
        if stream.head_block is not None:
            self._out.append(self._head_frame(number, END_HEADERS, stream.head_block))
            stream.head_block = None
        if size:
            room = min(stream.send_left, self._send_left, self._send_frame_max)
            if room <= 0:
                (self._resting if stream.send_left <= 0 else self._queued)[stream] = None
                return 0
            if size > room:
                size = room
            self._out.append(pack_head(size, _DATA, 0, number))
            self._out.extend(stream.take(size))
            stream.send_left -= size
            self._send_left -= size
            self._held.answers -= size
            self.sent += size
            self._allowance.earn(FOR_DATA)
            if stream.pending_size:
                self._ready[stream] = None
                return size
        if stream.end_block is not None:
            if stream.end_block:
                self._out.append(self._head_frame(number, _LAST, stream.end_block))
            else:
                self._out.append(pack_head(0, _DATA, END_STREAM, number))
            self._allowance.earn(FOR_CALL)
            self._close(stream, open_there=not stream.ended)
            if not stream.ended:
                self._out.append(reset_frame(number, FaultCode.NO_ERROR))
        else:
            stream.drained()
        return size

    def _grown(self, stream: Http2Stream) -> None:
        """The window of a stream has grown."""
        if stream.send_left > 0 and stream in self._resting:
            del self._resting[stream]
            if not self._ready and not self._out:
                self._wake()
            self._ready[stream] = None

    def _close(self, stream: Http2Stream, *, open_there: bool) -> None:
        stream.closed = True
        self._held.answers -= stream.pending_size
        stream.pending, stream.pending_size = [], 0
        del self.streams[stream.number]
        for line in (self._ready, self._resting, self._queued):
            line.pop(stream, None)
        self._note_closed(stream.number, open_there=open_there)

    def _note_closed(self, number: int, *, open_there: bool) -> None:
        self._closed[number] = open_there
        if len(self._closed) > CLOSED_KEPT:
            del self._closed[next(iter(self._closed))]

    def _close_all(self) -> None:
        """The connection is over."""
        for stream in tuple(self.streams.values()):
            self._close(stream, open_there=False)
            stream.gone()


def _first(line: dict[Http2Stream, None]) -> Http2Stream:
    stream = next(iter(line))
    del line[stream]
    return stream
