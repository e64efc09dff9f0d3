"""One connection of HTTP/2, server side, without a socket: bytes in, frames out.

`receive` takes what came and tells streams; what goes out is `frame_sender`'s. The other side is
taken for hostile: every rule of RFC 9113 that it breaks ends its stream or its connection with the
code that fits, every bound is one of `CallLimits`, and frames that carry nothing are paid for
(`frame_allowance`). What is held of a connection is less than one frame, one block of headers, its
table, and what its streams hold.

The moment is handed in with the bytes. Pure.
"""

from collections.abc import Callable

from ternmq.rpc.http2 import frame_allowance
from ternmq.rpc.http2.frame_sender import FrameSender
from ternmq.rpc.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    FRAME_SIZE_MAX,
    HEAD,
    HEAD_SIZE,
    PADDED,
    PREFACE,
    PRIORITY_GIVEN,
    SENT_FRAME_SIZE_MAX,
    SETTINGS_TAKEN,
    STREAM_BITS,
    WINDOW_AT_FIRST,
    WINDOW_MAX,
    ConnectionFault,
    FaultCode,
    FrameKind,
    Http2Setting,
    StreamFault,
    goaway_frame,
    ping_frame,
    read_long,
    read_settings,
    reset_frame,
    settings_frame,
    window_frame,
    without_padding,
)
from ternmq.rpc.http2.hpack import TABLE_SIZE, HeaderDecoder
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.http2.request_head import check_trailers, read_head
from ternmq.rpc.http2.stream import Http2Stream

_CONTINUATION = int(FrameKind.CONTINUATION)
_SETTINGS = int(FrameKind.SETTINGS)


def _protocol(message: str) -> ConnectionFault:
    return ConnectionFault(FaultCode.PROTOCOL_ERROR, message)


class Http2Core(FrameSender):
    """The rules of one connection."""

    def __init__(
        self,
        limits: CallLimits,
        held: HeldBytes,
        make_stream: "Callable[[Http2Core, int, int], Http2Stream | None]",
        wake: Callable[[], None],
        now: float,
    ) -> None:
        """`make_stream`, with the number and the window to send in, returns None where there are
        too many calls; `wake` as in `FrameSender`."""
        super().__init__(limits, held, wake, now)
        self._make_stream = make_stream
        self._now = now
        self._decoder = HeaderDecoder(limits.header_list_max)
        self._rest = b""
        self._greeted = False
        self._settled = False
        self._block: list[bytes] | None = None
        self._block_head = (0, 0)
        self._block_size = 0
        self._last = 0
        self._receive_left = limits.connection_window
        self._credited = 0
        self.leaving = False
        """No new call is taken."""
        self.fault: ConnectionFault | None = None
        """Why it has ended; None: it has not."""
        self._takers = (
            self._take_data,
            self._take_headers,
            self._take_priority,
            self._take_reset,
            self._take_settings,
            self._take_push,
            self._take_ping,
            self._take_goaway,
            self._take_window,
            self._take_continuation,
        )

    def greet(self) -> None:
        """Our first words."""
        limits = self._limits
        settings = {
            Http2Setting.MAX_CONCURRENT_STREAMS: limits.streams_max,
            Http2Setting.INITIAL_WINDOW_SIZE: limits.window,
            Http2Setting.MAX_HEADER_LIST_SIZE: limits.header_list_max,
        }
        self._send(settings_frame(settings))
        self._send(window_frame(0, limits.connection_window - WINDOW_AT_FIRST))

    def ping(self) -> None:
        """Ask whether the other side is there."""
        self._send(ping_frame(bytes(8), 0))

    def leave(self) -> None:
        """Take no new call; those that are there go on."""
        if not self.leaving:
            self.leaving = True
            self._send(goaway_frame(self._last, FaultCode.NO_ERROR, "this server is stopping"))

    def fail(self, fault: ConnectionFault) -> None:
        """Say why, and end everything."""
        if self.fault is None:
            self.fault = fault
            self._close_all()
            self._send(goaway_frame(self._last, fault.code, fault.message))

    def lost(self) -> None:
        """The connection is gone."""
        self.fault = self.fault or ConnectionFault(FaultCode.NO_ERROR, "gone")
        self._close_all()

    @property
    def settled(self) -> bool:
        """The other side has said its first words."""
        return self._settled

    @property
    def half_received(self) -> bool:
        """A frame, a block of headers or the greeting was begun and is not whole."""
        return bool(self._rest) or self._block is not None or not self._settled

    # What comes.

    def receive(self, data: bytes, now: float) -> None:
        """Take what came. Never raises for it: see `fault`."""
        if self.fault is not None:
            return
        self._now = now
        if self._rest:
            data = self._rest + data
        try:
            at = 0 if self._greeted else self._greet(data)
            at = self._take_frames(data, at)
            self._rest = data[at:] if at < len(data) else b""
        except ConnectionFault as fault:
            self.fail(fault)

    def _greet(self, data: bytes) -> int:
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise _protocol("these are not the first words of HTTP/2")
        if len(data) < len(PREFACE):
            return 0
        self._greeted = True
        return len(PREFACE)

    def _take_frames(self, data: bytes, at: int) -> int:
        """Returns where the first frame begins that is not whole."""
        if not self._greeted:
            return at
        size, takers = len(data), self._takers
        while size - at >= HEAD_SIZE:
            high, low, kind, flags, number = HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > FRAME_SIZE_MAX:
                raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
            begin = at + HEAD_SIZE
            if size - begin < length:
                break
            at = begin + length
            number &= STREAM_BITS
            if self._block is not None and (kind != _CONTINUATION or number != self._block_head[0]):
                raise _protocol("a block of headers is not continued")
            if not self._settled:
                if kind != _SETTINGS or flags & ACK:
                    raise _protocol("the first frame is not SETTINGS")
                self._settled = True
            if kind > _CONTINUATION:
                self._allowance.spend(frame_allowance.OTHER, self._now)
                continue
            try:
                takers[kind](number, flags, data[begin:at])
            except StreamFault as fault:
                self._break(number, fault.code)
        return at

    def _break(self, number: int, code: FaultCode) -> None:
        """End a stream that broke a rule; it may not have begun."""
        self._allowance.spend(frame_allowance.OTHER, self._now)
        stream = self.streams.get(number)
        if stream is not None:
            self._close(stream, open_there=not stream.ended)
            stream.gone()
        else:
            self._note_closed(number, open_there=True)
        self._send(reset_frame(number, code))

    def _take_data(self, number: int, flags: int, payload: bytes) -> None:
        size = len(payload)
        self._receive_left -= size
        if self._receive_left < 0:
            raise ConnectionFault(FaultCode.FLOW_CONTROL_ERROR, "more data than the window")
        self._credited += size
        if self._credited >= self._limits.connection_window // 2:
            self._send(window_frame(0, self._credited))
            self._receive_left += self._credited
            self._credited = 0
        stream = self.streams.get(number)
        if flags & PADDED:
            payload = without_padding(payload)
        if stream is None or stream.ended:
            self._take_late(number, stream, bool(flags & END_STREAM))
            return
        stream.receive_left -= size
        if stream.receive_left < 0:
            raise StreamFault(FaultCode.FLOW_CONTROL_ERROR, "more data than the window")
        if size != len(payload):
            self.credit(stream, size - len(payload))
        if not payload and not flags & END_STREAM:
            self._allowance.spend(frame_allowance.OTHER, self._now)
            return
        if stream.body_left is not None:
            stream.body_left -= len(payload)
            if stream.body_left < 0 or (flags & END_STREAM and stream.body_left):
                raise StreamFault(FaultCode.PROTOCOL_ERROR, "not as many bytes as announced")
        if payload:
            stream.data(payload)
        if flags & END_STREAM:
            self._end(stream)

    def _end(self, stream: Http2Stream) -> None:
        stream.ended = True
        if not stream.closed:
            stream.end()

    def _take_late(self, number: int, stream: Http2Stream | None, ends: bool) -> None:
        """Data for a stream that has ended, or never was."""
        if stream is not None:
            raise StreamFault(FaultCode.STREAM_CLOSED, "data after the end")
        if number > self._last or not number & 1:
            raise _protocol("data of a stream that was never opened")
        self._allowance.spend(frame_allowance.OTHER, self._now)
        if not self._closed.get(number, False):
            self._send(reset_frame(number, FaultCode.STREAM_CLOSED))
        elif ends:
            self._closed[number] = False

    def _take_headers(self, number: int, flags: int, payload: bytes) -> None:
        if not number & 1:
            raise _protocol("a call on a stream that is not the caller's")
        if flags & PADDED:
            payload = without_padding(payload)
        if flags & PRIORITY_GIVEN:
            if len(payload) < 5:
                raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, "headers without a priority")
            if int.from_bytes(payload[:4], "big") & STREAM_BITS == number:
                raise _protocol("a stream that depends on itself")
            payload = payload[5:]
        if flags & END_HEADERS:
            self._take_block(number, flags, payload)
        else:
            self._block, self._block_size = [payload], len(payload)
            self._block_head = (number, flags)

    def _take_continuation(self, number: int, flags: int, payload: bytes) -> None:
        block = self._block
        if block is None:
            raise _protocol("a continuation of nothing")
        block.append(payload)
        self._block_size += len(payload)
        limits = self._limits
        if self._block_size > limits.header_block_max or len(block) > limits.continuations_max:
            raise ConnectionFault(FaultCode.ENHANCE_YOUR_CALM, "headers without an end")
        if flags & END_HEADERS:
            self._block = None
            self._take_block(number, self._block_head[1], b"".join(block))

    def _take_block(self, number: int, flags: int, block: bytes) -> None:
        """All headers of one call, or those after its messages."""
        headers = self._decoder.decode(block)
        ended = bool(flags & END_STREAM)
        stream = self.streams.get(number)
        if stream is not None:
            if stream.ended:
                raise StreamFault(FaultCode.STREAM_CLOSED, "headers after the end")
            if not ended or stream.body_left:
                raise StreamFault(FaultCode.PROTOCOL_ERROR, "headers in the middle of a call")
            check_trailers(headers)
            self._end(stream)
            return
        if number <= self._last:
            self._take_late_headers(number, ended)
            return
        self._last = number
        if self.leaving:
            self._note_closed(number, open_there=not ended)
            return
        head = read_head(headers)
        if ended and head.content_length:
            raise StreamFault(FaultCode.PROTOCOL_ERROR, "not as many bytes as announced")
        stream = self._make_stream(self, number, self._send_left_at_first)
        if stream is None:
            raise StreamFault(FaultCode.REFUSED_STREAM, "too many calls")
        self.streams[number] = stream
        stream.body_left = head.content_length
        stream.head(head)
        if ended:
            self._end(stream)

    def _take_late_headers(self, number: int, ended: bool) -> None:
        open_there = self._closed.get(number)
        if open_there is None:
            raise _protocol("a stream with a lower number than the one before")
        if not open_there:
            raise ConnectionFault(FaultCode.STREAM_CLOSED, "headers after the end")
        self._allowance.spend(frame_allowance.OTHER, self._now)
        self._closed[number] = not ended

    def _take_priority(self, number: int, _flags: int, payload: bytes) -> None:
        if not number:
            raise _protocol("a priority without a stream")
        self._allowance.spend(frame_allowance.OTHER, self._now)
        if len(payload) != 5:
            raise StreamFault(FaultCode.FRAME_SIZE_ERROR, "a priority has 5 bytes")
        if int.from_bytes(payload[:4], "big") & STREAM_BITS == number:
            raise StreamFault(FaultCode.PROTOCOL_ERROR, "a stream that depends on itself")

    def _take_reset(self, number: int, _flags: int, payload: bytes) -> None:
        read_long(payload)
        if number > self._last or not number & 1:
            raise _protocol("a reset of a stream that was never opened")
        self._allowance.spend(frame_allowance.RESET, self._now)
        stream = self.streams.get(number)
        if stream is not None:
            self._close(stream, open_there=False)
            stream.gone()

    def _take_settings(self, number: int, flags: int, payload: bytes) -> None:
        if number:
            raise _protocol("settings of a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, "an answer with settings")
            self._allowance.spend(frame_allowance.OTHER, self._now)
            return
        self._allowance.spend(frame_allowance.SETTINGS, self._now)
        for name, value in read_settings(payload):
            self._take_setting(name, value)
        self._send(SETTINGS_TAKEN)

    def _take_setting(self, name: int, value: int) -> None:
        if name == Http2Setting.INITIAL_WINDOW_SIZE:
            if value > WINDOW_MAX:
                raise ConnectionFault(FaultCode.FLOW_CONTROL_ERROR, "a window that is too large")
            change = value - self._send_left_at_first
            self._send_left_at_first = value
            for stream in self.streams.values():
                stream.send_left += change
                if stream.send_left > WINDOW_MAX:
                    raise ConnectionFault(FaultCode.FLOW_CONTROL_ERROR, "a window too large")
                self._grown(stream)
        elif name == Http2Setting.MAX_FRAME_SIZE:
            if not FRAME_SIZE_MAX <= value < 2**24:
                raise _protocol("a frame size that cannot be")
            self._send_frame_max = min(value, SENT_FRAME_SIZE_MAX)
        elif name == Http2Setting.ENABLE_PUSH:
            if value > 1:
                raise _protocol("a switch that is neither on nor off")
        elif name == Http2Setting.HEADER_TABLE_SIZE:
            self._table_changed = self._table_changed or value < TABLE_SIZE

    def _take_push(self, _number: int, _flags: int, _payload: bytes) -> None:
        raise _protocol("clients do not push")

    def _take_ping(self, number: int, flags: int, payload: bytes) -> None:
        if number:
            raise _protocol("a ping of a stream")
        if len(payload) != 8:
            raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, "a ping has 8 bytes")
        self._allowance.spend(frame_allowance.PING, self._now)
        if not flags & ACK:
            self._send(ping_frame(payload, ACK))

    def _take_goaway(self, number: int, _flags: int, payload: bytes) -> None:
        if number:
            raise _protocol("a goodbye of a stream")
        if len(payload) < 8:
            raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, "a goodbye has 8 bytes at least")
        self._allowance.spend(frame_allowance.SETTINGS, self._now)

    def _take_window(self, number: int, _flags: int, payload: bytes) -> None:
        more = read_long(payload) & STREAM_BITS
        self._allowance.spend(frame_allowance.OTHER, self._now)
        if not number:
            if not more:
                raise _protocol("a window that grows by nothing")
            self._send_left += more
            if self._send_left > WINDOW_MAX:
                raise ConnectionFault(FaultCode.FLOW_CONTROL_ERROR, "a window too large")
            if self._queued and not self._ready and not self._out:
                self._wake()
            return
        stream = self.streams.get(number)
        if stream is None:
            if number > self._last or not number & 1:
                raise _protocol("a window of a stream that was never opened")
            return
        if not more:
            raise StreamFault(FaultCode.PROTOCOL_ERROR, "a window that grows by nothing")
        stream.send_left += more
        if stream.send_left > WINDOW_MAX:
            raise StreamFault(FaultCode.FLOW_CONTROL_ERROR, "a window too large")
        self._grown(stream)
