"""One accepted connection of callers: a socket around `core`, and what its calls share.

What is sent in one turn of the loop leaves in one write. While the other side does not read what
was written, nothing is read from it either, so nothing it asks for can pile up. There is no task
or timer per connection: `call_server` looks at all of them once a second and asks `overdue`.
"""

import asyncio
from typing import Protocol, cast

from ternmq.core.log import get_logger
from ternmq.rpc.address import endpoint, join_address
from ternmq.rpc.http2.calls import CallTable
from ternmq.rpc.http2.core import Http2Core
from ternmq.rpc.http2.deadlines import CallDeadlines
from ternmq.rpc.http2.frames import ConnectionFault, FaultCode
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.http2.running_call import RunningCall

HTTP1 = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI")
HTTP1_TEXT = b"This port speaks gRPC, which needs HTTP/2.\n"
HTTP1_ANSWER = (
    b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Type: text/plain\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(HTTP1_TEXT), HTTP1_TEXT)
)

log = get_logger()


class ConnectionOwner(Protocol):
    """The listener of a connection."""

    loop: asyncio.AbstractEventLoop
    table: CallTable
    limits: CallLimits
    held: HeldBytes
    deadlines: CallDeadlines

    def came(self, connection: "CallConnection") -> bool:
        """False: there are too many."""

    def went(self, connection: "CallConnection") -> None: ...

    def may_call(self) -> bool:
        """Is there room for one more call?"""

    def call_began(self) -> None: ...

    def call_ended(self) -> None: ...


class CallConnection(asyncio.Protocol):
    """A caller as the server sees it."""

    def __init__(self, owner: ConnectionOwner, *, secure: bool = False) -> None:
        self._owner = owner
        self.loop = owner.loop
        self.table = owner.table
        self.limits = owner.limits
        self.held = owner.held
        self.deadlines = owner.deadlines
        self.secure = secure
        self.peer = ""
        now = self.loop.time()
        self._core = Http2Core(self.limits, self.held, self._make_call, self._wake, now)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._running = 0
        self._scheduled = False
        self._paused = False
        self._leaving = False
        self._made_at = self._heard_at = self._whole_at = self._moved_at = now
        self._sent_before = 0
        self._asked = False
        self._leave_by = 0.0

    # Calls.

    def _make_call(self, core: Http2Core, number: int, send_left: int) -> RunningCall | None:
        streams_max = self.limits.streams_max
        if len(core.streams) >= streams_max or self._running >= streams_max:
            return None
        if not self._owner.may_call():
            return None
        self._running += 1
        self._owner.call_began()
        return RunningCall(core, number, send_left, self)

    def ended(self) -> None:
        self._running -= 1
        self._owner.call_ended()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self.limits.write_high)
        self.peer = join_address(*endpoint(transport.get_extra_info("peername")))
        if not self._owner.came(self):
            self._transport.abort()
            return
        self._core.greet()

    def data_received(self, data: bytes) -> None:
        if self._leaving:
            return
        core, now = self._core, self.loop.time()
        self._heard_at, self._asked = now, False
        core.receive(data, now)
        if not core.half_received:
            self._whole_at = now
        if core.fault is not None:
            self._fail(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._leaving = True
        self._core.lost()
        self._owner.went(self)

    def pause_writing(self) -> None:
        self._paused = True
        if not self._leaving:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        if not self._leaving:
            self._transport.resume_reading()
            self._heard_at = self.loop.time()
        self._flush()

    def _wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        core, transport = self._core, self._transport
        while core.has_more and not self._paused and not transport.is_closing():
            frames = core.pump()
            if frames:
                transport.write(b"".join(frames))

    # The end.

    def leave(self) -> None:
        """Tell the caller that no new call is taken here."""
        self._core.leave()

    def close(self, fault: ConnectionFault) -> None:
        """End it, and say why."""
        self._core.fail(fault)
        self._fail(b"")

    def abort(self) -> None:
        self._transport.abort()

    def _fail(self, first: bytes) -> None:
        """Send what was written, and drop what still comes until the other side has gone: closing
        with unread bytes would make the kernel throw the reason away."""
        if self._leaving:
            return
        fault = self._core.fault
        if fault is not None and fault.code is not FaultCode.NO_ERROR:
            log.info("a caller broke a rule of HTTP/2", peer=self.peer, reason=fault.message)
        self._flush()
        self._leaving = True
        self._leave_by = self.loop.time() + self.limits.linger_s
        transport = self._transport
        if transport.is_closing():
            return
        if first.startswith(HTTP1):
            transport.write(HTTP1_ANSWER)
        if self._paused:
            transport.resume_reading()
        if transport.can_write_eof():
            try:
                transport.write_eof()
            except OSError:
                transport.abort()
        else:
            transport.close()

    def look(self, now: float) -> None:
        """Once a second: is it still one that is worth its place?"""
        if self._leaving:
            if self._leave_by and now >= self._leave_by:
                self._transport.abort()
            return
        limits, core = self.limits, self._core
        if core.sent != self._sent_before or not (core.waiting or self._paused):
            self._sent_before, self._moved_at = core.sent, now
        reason = ""
        if now - self._moved_at > limits.stalled_s:
            reason = f"answers were not read for {limits.stalled_s:g} s"
        elif core.half_received and not self._paused and now - self._whole_at > limits.half_s:
            reason = f"a frame was begun and not finished in {limits.half_s:g} s"
        elif not core.settled and now - self._made_at > limits.arrive_s:
            reason = f"no first words within {limits.arrive_s:g} s"
        elif now - self._heard_at > limits.silent_s and not self._paused:
            reason = f"silent for {limits.silent_s:g} s"
        if reason:
            self.close(ConnectionFault(FaultCode.ENHANCE_YOUR_CALM, reason))
        elif now - self._heard_at > limits.ping_after_s and not self._asked:
            self._asked = True
            core.ping()
