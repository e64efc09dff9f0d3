"""One accepted connection, server side: reads frames, hands them to the handler, writes answers.

Theory of operation
-------------------
The first frame must be HELLO; then every frame goes to `Handler.frame` on the event loop, except
PING, which is answered here. A server of the cluster proves in a second step that it is one
(`handshake`, `node_proof`); what only such may ask is refused here, on every listener. Answers
given in one turn of the loop leave in one write (measured: 970 k pipelined requests a second
against 120 k with a write for each). There is no task, timer or stream per peer: `server` looks at
all peers once a second and calls `overdue`.

Rules
-----
1. A peer that breaks a rule is closed and told why (an ERROR frame with correlation 0). Others do
   not notice. Closing writes the reason, half-closes and drops what still arrives for a moment;
   closing outright would make the kernel throw the reason away. TLS has no half-close here, so
   there the peer is always told, hangs up when it has read it, and is cut if it does not.
2. Memory is bounded: not answered bytes (`hold`/`release`), unsent answers and half-received frames
   each pause reading from the peer that causes them. A paused peer is not called silent.
3. Correlations grow; a frame that arrives twice is refused.
"""

import asyncio
from typing import Protocol, cast

from ternmq.core.errors import Closed, OverLimit, ProtocolError, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.rpc.address import NOWHERE, endpoint, join_address, packed_endpoints
from ternmq.rpc.buffers import JOIN_SIZE_MAX, Buffer, receive_buffer
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.connection_pool import ConnectionPool, Pause
from ternmq.rpc.handshake import Handshake
from ternmq.rpc.limits import HELLO_SIZE_MAX, LEAVING_MAX, TLS_HELLO_SIZE_MAX
from ternmq.rpc.node_proof import NodeIdentity, proven
from ternmq.security.access.quota import UserUse
from ternmq.security.access.rights import Rights
from ternmq.security.tls.door import TlsTerms
from ternmq.security.tls.peer_certificate import PeerCertificate, certificate_of
from ternmq.security.tls.tls_errors import SPEAKS_PLAIN, begins_tls
from ternmq.wire.actions import OF_NODES
from ternmq.wire.decoder import OWN_SIZE_MIN, FrameDecoder
from ternmq.wire.frame import FRAME_SIZE_MAX, HEADER, Frame, pack_header
from ternmq.wire.messages.hello import Challenge, Hello, Welcome, failure
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack

log = get_logger()

_HELLO, _PING, _NOTICE = int(Command.HELLO), int(Command.PING), int(Command.NOTICE)
_AUTH = int(Command.AUTH)
_ANSWER, _ERROR, _ONE_WAY = int(Flag.ANSWER), int(Flag.ERROR), int(Flag.ONE_WAY)
_pack_header = HEADER.pack

TURN_S = 0.005  # So long a peer has the loop at most; then the others have their turn.
COSTLY_S = 0.02
"""Who took longer rests as long as it took: nobody has more than half of the loop."""


class Handler(Protocol):
    """What a server does with its peers. Everything is called on the loop and must not block."""

    def welcome(self, peer: "Peer", hello: Hello) -> Welcome:
        """Let a peer in, or raise the `TernError` it is refused with."""

    def frame(self, peer: "Peer", frame: Frame) -> None:
        """Handle one frame. A `TernError` becomes the answer; a `ProtocolError` closes the peer.
        Looked up for every frame, so that a handler may be an attribute that changes.

        A frame with the ONE_WAY flag must not be answered: the client would not know by what.
        """

    def lost(self, peer: "Peer") -> None:
        """A peer that was welcome is gone."""


class Peer(asyncio.BufferedProtocol):
    """A client as the server sees it."""

    rights: Rights | None = None
    """What it may do, where security is on; None: of a server of the cluster, or nobody asks."""
    use: UserUse | None = None
    """What its user has here, likewise."""

    def __init__(
        self, pool: "ConnectionPool[Peer]", handler: Handler, *, tls: TlsTerms | None = None
    ) -> None:
        self.tls = tls
        """How it came in over TLS; None: in the clear."""
        self.certificate: PeerCertificate | None = None
        """What the peer has shown and an authority of ours has signed; None: nothing."""
        self._pool = pool
        self._handler = handler
        hello_max = HELLO_SIZE_MAX if tls is None else TLS_HELLO_SIZE_MAX
        self._decoder = FrameDecoder(receive_buffer(), size_max=hello_max)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._correlation = 0
        self._gathered: list[Buffer] = []
        self._paused = Pause(0)
        self._blocked = False  # The same as a plain bool: it is asked for every frame.
        self._deferred: list[Frame] = []
        self._partial_held = 0
        self._partial_since = -1.0
        self._unsent_before = 0
        self.stalled_since = 0.0
        self.heard_at = pool.now
        self.connected_at = pool.now
        self.number = next(pool.numbers)
        self.leave_by = 0.0
        self.held = 0
        self.closed = False
        """Nothing is read from or written to this peer any more."""
        self.writable = False
        self.hello: Hello | None = None
        self.node: NodeIdentity | None = None
        """Which server of the cluster this is, as it has proven."""
        self._handshake = Handshake(pool.gate)
        self.address: tuple[str, int] = ("", 0)
        self.server_address: tuple[str, int] = ("", 0)
        self.endpoints = NOWHERE
        """Both addresses as the header of a batch wants them."""

    @property
    def entitled(self) -> bool:
        """May it have one of the last connections of a server?"""
        return self.node is not None

    # Answers.

    def answer(self, command: int, correlation: int, *buffers: Buffer) -> None:
        """Send the answer to one request; the buffers stay untouched until they are sent."""
        size = 0
        for buffer in buffers:
            size += len(buffer)
        assert size <= FRAME_SIZE_MAX, "an answer larger than a frame"
        self._write(_pack_header(size, command, _ANSWER, correlation), size, buffers)

    def fail(self, command: int, correlation: int, error: TernError) -> None:
        """Answer a request with an error, which the client will raise."""
        payload = failure(error)
        header = _pack_header(len(payload), command, _ANSWER | _ERROR, correlation)
        self._write(header, len(payload), (payload,))

    def push(self, command: int, *buffers: Buffer) -> None:
        """Tell the client something it did not ask for; the buffers stay untouched until sent."""
        size = sum(map(len, buffers))
        self._write(pack_header(command, 0, 0, size), size, buffers)

    def _write(self, header: bytes, size: int, buffers: tuple[Buffer, ...]) -> None:
        """Small answers wait for the end of this turn of the loop, to leave in one write."""
        if self.closed:
            return
        gathered = self._gathered
        if not gathered:
            self._pool.flush_later(self)
        gathered.append(header)
        gathered.extend(buffers)
        if size > JOIN_SIZE_MAX:
            if not self._transport.is_closing():  # Cut by the kernel; `connection_lost` follows.
                self._transport.writelines(gathered)
            self._gathered = []
            self._pool.answered(size)
            self._check_unsent()

    def flush(self) -> None:
        """Hand what was gathered to the transport."""
        gathered = self._gathered
        if gathered:
            if not self._transport.is_closing():
                self._transport.write(b"".join(gathered))
            gathered.clear()
            self._check_unsent()

    def _check_unsent(self) -> None:
        if not self.writable and not self.closed:
            unsent = self._transport.get_write_buffer_size()
            if unsent > self._pool.limits.write_max:
                self.close(OverLimit(f"{unsent} bytes of answers are waiting to be read"))
            else:
                self._pool.note_unsent(self, unsent)

    # Bounds.

    @property
    def half_received(self) -> bool:
        """Memory is held for a large frame of which the end is missing."""
        return self._partial_held > 0

    def hold(self, size: int) -> None:
        """Count bytes as accepted and not answered. Each hold needs its release, lost or not."""
        self.held += size
        if self.held > self._pool.limits.inbound_max:
            self.pause(Pause.INBOUND)
        self._pool.take(self, size)

    def release(self, size: int) -> None:
        """Undo a hold."""
        self.held -= size
        assert self.held >= 0, "more released than held"
        if (
            self._blocked
            and self._paused & Pause.INBOUND
            and self.held <= self._pool.limits.inbound_max // 2
        ):
            self.resume(Pause.INBOUND)
        self._pool.give_back(size)

    def pause(self, why: Pause) -> None:
        """Stop reading from this peer; the reasons add up."""
        if not self._paused and not self.closed and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused |= why
        self._blocked = True

    def resume(self, why: Pause) -> None:
        """One reason is gone; reading goes on when it was the last."""
        was_paused = bool(self._paused)
        self._paused &= ~why
        self._blocked = bool(self._paused)
        if was_paused and not self._paused and not self.closed and not self._transport.is_closing():
            self.heard_at = self._pool.now  # What it sent meanwhile waits in the kernel.
            if self._partial_since >= 0:
                self._partial_since = self._pool.now
            if self._deferred:
                self._pool.go_on_later(self)
            else:
                self._transport.resume_reading()

    def rest(self, seconds: float) -> None:
        """What this peer asked for was much work: the others first, then its next frame."""
        if not self.closed and not self._paused & Pause.COSTLY:
            self.pause(Pause.COSTLY)
            self._pool.resume_later(self, seconds)

    def go_on(self) -> None:
        """Handle what had arrived before the pause, then read on."""
        if self._pool.busy:
            self._pool.go_on_later(self)
            return
        self._paused &= ~Pause.BUSY
        self._blocked = bool(self._paused)
        if self._blocked or self.closed:
            return
        deferred, self._deferred = self._deferred, []
        self._take_all(deferred)
        if not self.closed and not self._blocked and not self._transport.is_closing():
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        self.writable = False
        self._unsent_before = self._transport.get_write_buffer_size()
        self.stalled_since = self._pool.now
        self.pause(Pause.UNREAD)
        if not self.closed:
            self._pool.note_unsent(self, self._unsent_before)

    def resume_writing(self) -> None:
        self.writable = not self.closed
        self._pool.note_unsent(self, 0)
        self.resume(Pause.UNREAD)

    # Arrivals.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        pool = self._pool
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=pool.limits.write_high)
        self.address = endpoint(transport.get_extra_info("peername"))
        self.server_address = endpoint(transport.get_extra_info("sockname"))
        self.endpoints = packed_endpoints(self.address, self.server_address)
        self.writable = True
        refusal: TernError | None = pool.admit(self)
        if self.tls is not None:
            self.certificate = certificate_of(transport.get_extra_info("ssl_object"))
            refusal = refusal or self.tls.refusal(self.certificate)
        if refusal is not None:
            self.close(refusal)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        decoder = self._decoder
        self.heard_at = self._pool.now
        frames = decoder.received(nbytes)
        if self._pool.busy:
            self._deferred += frames
            self.pause(Pause.BUSY)
            self._pool.go_on_later(self)
        else:
            self._take_all(frames)
        if self.closed:
            return
        if decoder.failed is not None:
            tls = self.hello is None and begins_tls(decoder.first)
            self.close(ProtocolError(SPEAKS_PLAIN) if tls else decoder.failed)
        elif decoder.partial:
            if frames or self._partial_since < 0:
                self._partial_since = self._pool.now
            if decoder.held != self._partial_held:
                self._count_partial(decoder.held)
        elif self._partial_since >= 0:
            self._partial_since = -1.0
            self._count_partial(0)

    def _count_partial(self, held: int) -> None:
        """Half-received large frames count as held; small ones are bounded by their number."""
        held = held if held > OWN_SIZE_MIN else 0
        change, self._partial_held = held - self._partial_held, held
        if change > 0:
            self._pool.take(self, change)
        elif change < 0:
            self._pool.give_back(-change)
            if held == 0 and self._pool.may_finish is self:
                self._pool.let_next_finish()

    def _take_all(self, frames: list[Frame]) -> None:
        """Handle frames; what comes after one that paused the peer waits with it, so that a
        pipeline of requests for large answers is not answered faster than it is read. The time
        that they take is measured: a peer that had its turn lets the others go first."""
        monotonic = self._pool.monotonic
        began = monotonic()
        for at, frame in enumerate(frames):
            if self._blocked or self._deferred:
                self._deferred += frames[at:]
                return
            self._take(frame)
            if self.closed:
                return
            spent = monotonic() - began
            if spent > TURN_S:
                self.rest(spent if spent > COSTLY_S else 0.0)

    def _take(self, frame: Frame) -> None:
        correlation, flags = frame.correlation, frame.flags
        if correlation <= self._correlation or flags & (_ANSWER | _ERROR):
            self.close(_misnumbered(frame, self._correlation))
            return
        self._correlation = correlation
        if self.hello is None:
            self._greet(frame)
            return
        command = frame.command
        if command <= _AUTH:
            self._take_control(frame)
            return
        try:
            if command in OF_NODES:
                proven(self)
            self._handler.frame(self, frame)
        except ProtocolError as error:
            self.close(error)
        except TernError as error:
            if not flags & _ONE_WAY:
                self.fail(command, correlation, error)
        except Exception as bug:
            BUGS.report(bug, command=command, app=self.hello.app)
            if not flags & _ONE_WAY:
                sorry = TernError("the server failed to handle this request; its log says why")
                self.fail(command, correlation, sorry)

    def _take_control(self, frame: Frame) -> None:
        """HELLO or AUTH again, PING, or a NOTICE that only servers send."""
        if frame.command == _PING:
            if not frame.flags & _ONE_WAY:
                self.answer(_PING, frame.correlation)
        else:
            name = Command(frame.command).name
            self.close(ProtocolError(f"{name} is not expected after HELLO"))

    def _greet(self, frame: Frame) -> None:
        """The first frame, of a server the second as well: let the peer in or tell it why not."""
        entrance = self._handshake
        command = entrance.expects
        try:
            comes = entrance.step(frame, join_address(*self.address), self.certificate)
            if isinstance(comes, Challenge):
                self.answer(command, frame.correlation, pack(comes))
                return
            self.node, self.hello = entrance.node, comes
            self._pool.check_reserve(self, entitled=self.entitled)
            welcome = self._handler.welcome(self, comes)
        except TernError as error:
            past_hello = self.hello is not None or command == _AUTH
            self.hello = None
            self.fail(command, frame.correlation, error)
            self._leave()
            if not past_hello:
                self._pool.report(self, error)
            return
        del self._handshake
        self._decoder.size_max = FRAME_SIZE_MAX
        self.answer(command, frame.correlation, entrance.sealed(welcome))

    # The end.

    def close(self, reason: TernError | None = None) -> None:
        """Say why (None: no need to), then go; what was written before is still sent."""
        if self.closed:
            return
        if reason is not None:
            self._pool.report(self, reason)
        elif self.tls is not None:
            reason = Closed("this server is stopping")
        if reason is not None:
            payload = failure(reason)
            self._gathered += (pack_header(_NOTICE, _ERROR, 0, len(payload)), payload)
        self._leave()

    def _leave(self) -> None:
        """Half-close, and drop what still arrives until the peer is gone or its time is up."""
        pool = self._pool
        self.closed = True
        self.writable = False
        self.flush()
        if self._paused and not self._transport.is_closing():
            # To notice the end, and because closing with unread bytes makes the kernel reset.
            self._transport.resume_reading()
        self._forget()
        self.leave_by = pool.now + pool.limits.linger
        pool.leaving[self] = None
        pool.nobody_leaving.clear()
        if len(pool.leaving) > LEAVING_MAX:
            self._transport.abort()
        elif self._transport.can_write_eof() and not self._transport.is_closing():
            try:
                self._transport.write_eof()
            except OSError:  # Reset by the peer, which the loop has not told us yet.
                self._transport.abort()
        elif self.tls is None:
            self._transport.close()

    def abort(self) -> None:
        """Cut the connection now."""
        self._transport.abort()

    def cut(self, reason: TernError) -> None:
        """Go at once, with all that is unsent; the reason is for the log."""
        self.close(reason)
        self.abort()

    def _forget(self) -> None:
        pool = self._pool
        pool.drop(self)
        pool.note_unsent(self, 0)
        self._deferred = []
        self._partial_since = -1.0
        self._count_partial(0)
        self._decoder = FrameDecoder(receive_buffer())
        if self.hello is not None:
            self._handler.lost(self)

    def eof_received(self) -> bool:
        return False  # The transport closes itself, after sending what was written.

    def connection_lost(self, exc: Exception | None) -> None:
        pool = self._pool
        if not self.closed:
            self.closed = True
            self.writable = False
            self._forget()
        pool.leaving.pop(self, None)
        if not pool.leaving:
            pool.nobody_leaving.set()

    def overdue(self, now: float) -> TernError | None:
        """Why this peer has to go, if it has to; called by the sweep."""
        limits = self._pool.limits
        now -= limits.sweep  # Times are noted to the last sweep; never close early.
        if self.hello is None and now - self.connected_at > limits.hello_timeout:
            return Unavailable(f"no HELLO within {limits.hello_timeout:g} s")
        if not self.writable and self._stalled(now):
            return Unavailable(f"answers were not read for {limits.frame_timeout:g} s")
        if self._paused:
            return None
        if 0 <= self._partial_since < now - limits.frame_timeout:
            return Unavailable(f"a frame was begun and not finished in {limits.frame_timeout:g} s")
        if now - self.heard_at > limits.idle_timeout:
            return Unavailable(f"silent for {limits.idle_timeout:g} s, not even a PING")
        return None

    def stuck(self, now: float) -> bool:
        """Holds memory for a frame that should be here by now; asked when memory is short."""
        limits = self._pool.limits
        age = now - limits.sweep - self._partial_since
        return self.half_received and not self._paused and age > limits.crowded_timeout

    def _stalled(self, now: float) -> bool:
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent_before:
            self.stalled_since = self._pool.now
        self._unsent_before = unsent
        return now - self.stalled_since > self._pool.limits.frame_timeout


def _misnumbered(frame: Frame, last: int) -> ProtocolError:
    if frame.flags & (_ANSWER | _ERROR):
        return ProtocolError(f"flags {frame.flags:#x}: clients send requests, not answers")
    return ProtocolError(f"correlation {frame.correlation} after {last}: a frame came twice")
