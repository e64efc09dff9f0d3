"""The calling side of one TCP connection: pipelined requests, answers by correlation.

Theory of operation
-------------------
`call` writes a request and returns a future at once; any number may be under way, answers come in
any order. What is called in one turn of the loop leaves in one write. One timer per connection
sends a PING every heartbeat and gives the connection up when nothing was heard for three of them.

Rules
-----
1. When the connection ends, for whatever reason, every call under way fails with the reason, and
   so does every later one. A connection is never repaired; open a new one.
2. An answer nobody asked for, a broken frame, an answer that came twice: the connection is closed.
   A bad server costs at most one frame of memory.
3. Cancelling a future does not cancel the request; its late answer is dropped.
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

from ternmq.core.errors import Closed, NotMaster, ProtocolError, TernError, TooLarge, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.rpc.address import is_loopback, split_address
from ternmq.rpc.buffers import JOIN_SIZE_MAX, Buffer, receive_buffer
from ternmq.rpc.node_proof import Channel, Greeting, NodeGreeting, TlsGreeting
from ternmq.security.tls.client_tls import OutgoingTls
from ternmq.security.tls.peer_certificate import PeerCertificate, certificate_of
from ternmq.security.tls.tls_errors import lost_early, why_not_connected
from ternmq.wire.decoder import FrameDecoder
from ternmq.wire.frame import FRAME_SIZE_MAX, HEADER, Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome, read_failure
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

log = get_logger()

WRITE_HIGH = 4 * MIB
SILENCE_MIN = 10.0
"""Seconds: a connection is not given up earlier, however short the heartbeat."""
HEARTBEATS_MISSED_MAX = 3
CLOSE_S = 1.0
"""Seconds that a connection may take to send what was written and to end."""

_ANSWER, _ERROR, _ONE_WAY = int(Flag.ANSWER), int(Flag.ERROR), int(Flag.ONE_WAY)
_PING = int(Command.PING)
_pack_header = HEADER.pack

A = TypeVar("A", bound=Record)


class AnswerTaker(Protocol):
    """Gets the answer to one request in the moment in which it is read, without a future and a
    turn of the loop. Hears of it once, and must not raise."""

    def done(self) -> bool: ...

    def set_result(self, payload: bytearray, /) -> None: ...

    def set_exception(self, error: TernError, /) -> None: ...


OnPush = Callable[[Frame], None]
OnLost = Callable[[TernError], None]

_abandoned: list[asyncio.Transport] = []
"""Transports of a parent process: kept, since collecting one would touch the parent's poll set."""


class Connection(asyncio.BufferedProtocol):
    """One connection to one server. Made by `open`, used from one event loop."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.welcome: Welcome = None  # type: ignore[assignment]
        self.certificate: PeerCertificate | None = None
        """Of the server, over TLS."""
        self._on_push: OnPush | None = None
        self._on_lost: OnLost | None = None
        self._loop = loop
        self._new_future = loop.create_future
        self._decoder = FrameDecoder(receive_buffer())
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._pending: dict[int, asyncio.Future[bytearray] | AnswerTaker] = {}
        self._correlation = 0
        self._lost: TernError | None = None
        self._gone = loop.create_future()
        self._writable: asyncio.Future[None] | None = None
        self._gathered: list[Buffer] = []
        self._corked = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard = True
        self._missed = 0
        self._silence_max = HEARTBEATS_MISSED_MAX

    @classmethod
    async def open(cls, address: str, greeting: Greeting, *, timeout: float) -> "Connection":
        """Connect and say hello; `timeout` (seconds) covers both."""
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        connection = cls(address, loop)
        try:
            async with asyncio.timeout(timeout):
                tls = greeting.tls if isinstance(greeting, TlsGreeting) else None
                options = {} if tls is None else _tls_options(tls, host, timeout)
                await loop.create_connection(lambda: connection, host, port, **options)
                if tls is not None:
                    connection._check_certificate(tls)
                connection._welcomed(await connection._greet(greeting))
        except ssl.SSLError as error:
            connection.abort()
            raise why_not_connected(address, error) from error
        except TimeoutError as error:
            connection.abort()
            raise Unavailable(
                f"{address} did not answer within {timeout:g} s; is it a TernMQ server, and is it "
                "reachable from here?"
            ) from error
        except OSError as error:
            raise Unavailable(
                f"cannot reach {address} ({error.strerror or error}); is a server running there "
                "('tern up'), and are host and port right?"
            ) from error
        except BaseException:
            connection.abort()
            raise
        return connection

    def _check_certificate(self, tls: OutgoingTls) -> None:
        channel = self._transport.get_extra_info("ssl_object")
        self.certificate = certificate_of(channel)
        assert self.certificate is not None, "a client context always asks for one"
        tls.check_server(self.certificate, self.address)

    async def _greet(self, greeting: Greeting) -> Welcome:
        if isinstance(greeting, TlsGreeting):
            greeting = greeting.greeting
        if isinstance(greeting, Hello):
            return unpack(await self.call(Command.HELLO, pack(greeting)), Welcome)
        if not isinstance(greeting, NodeGreeting):
            return await greeting.greet(self.call, self.address, self._channel())
        if greeting.credential.secret is None:
            return unpack(await self.call(Command.HELLO, greeting.certified()), Welcome)
        opening = greeting.begin()
        challenge = await self.call(Command.HELLO, opening.hello)
        if (welcome := opening.let_in(challenge)) is not None:
            return welcome
        auth, wrong = opening.answer(challenge, self.address)
        if wrong is None:
            return unpack(await self.call(Command.AUTH, pack(auth)), Welcome)
        with suppress(TernError):  # Its log says it as well.
            await self.call(Command.AUTH, pack(auth))
        raise wrong

    def _channel(self) -> Channel:
        """What a proof is given over."""
        if self.certificate is not None:
            return Channel(private=True, shown=self.certificate.sha256)
        return Channel(private=is_loopback(split_address(self.address)[0]))

    @property
    def closed(self) -> bool:
        return self._lost is not None

    @property
    def pending(self) -> int:
        """Calls under way."""
        return len(self._pending)

    def listen(self, *, pushed: OnPush | None = None, lost: OnLost | None = None) -> None:
        """Hear of what the server sends unasked, and of the end; of an end that was, soon."""
        self._on_push = pushed or self._on_push
        self._on_lost = lost or self._on_lost
        if lost is not None and self._lost is not None:
            self._loop.call_soon(lost, self._lost)

    # Requests.

    def call(self, command: int, *buffers: Buffer) -> "asyncio.Future[bytearray]":
        """Send a request now; the future gets the answer's payload, or raises what was answered.

        The buffers must not change until the answer is there.
        """
        future: asyncio.Future[bytearray] = self._new_future()
        if self._lost is not None:
            _fail(future, self._lost)
            return future
        correlation = self._correlation + 1
        self._write(command, 0, correlation, buffers)
        self._pending[correlation] = future
        return future

    def call_for(self, taker: AnswerTaker, command: int, *buffers: Buffer) -> None:
        """As `call`; the answer goes to `taker`."""
        if self._lost is not None:
            self._loop.call_soon(_fail, taker, self._lost)
            return
        correlation = self._correlation + 1
        self._write(command, 0, correlation, buffers)
        self._pending[correlation] = taker

    def cork(self) -> None:
        """More is about to be called in this turn: `uncork` sends it, without another turn."""
        self._corked = not self._gathered

    def uncork(self) -> None:
        if self._corked:
            self._corked = False
            self._flush()

    def send(self, command: int, *buffers: Buffer) -> None:
        """Send a request that gets no answer; lost without a word if the connection is."""
        if self._lost is None:
            self._write(command, _ONE_WAY, self._correlation + 1, buffers)

    def _write(
        self, command: int, flags: int, correlation: int, buffers: tuple[Buffer, ...]
    ) -> None:
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if size > FRAME_SIZE_MAX:
            raise TooLarge(f"a request of {size} bytes; at most {FRAME_SIZE_MAX} fit in a frame")
        self._correlation = correlation
        header = _pack_header(size, command, flags, correlation)
        gathered = self._gathered
        if not gathered and not self._corked:
            self._loop.call_soon(self._flush)
        gathered.append(header)
        gathered.extend(buffers)
        if size > JOIN_SIZE_MAX:
            if not self._transport.is_closing():  # Cut by the kernel; `connection_lost` follows.
                self._transport.writelines(gathered)
            self._gathered = []

    def _flush(self) -> None:
        gathered = self._gathered
        if gathered and self._lost is None and not self._transport.is_closing():
            self._transport.write(b"".join(gathered))
        gathered.clear()

    async def drain(self) -> None:
        """Wait while more than WRITE_HIGH bytes are unsent; raises if the connection is lost."""
        while self._writable is not None and self._lost is None:
            await asyncio.shield(self._writable)
        if self._lost is not None:
            raise self._lost.copy()

    # The end.

    async def close(self) -> None:
        """Send what was written, then close; calls under way fail with `Closed`."""
        if self._lost is None:
            self._flush()
            self._end(Closed(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.close()
            try:
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.shield(self._gone)
            except TimeoutError:
                self._transport.abort()

    def abort(self, reason: TernError | None = None) -> None:
        """Cut the connection without waiting for anything; `reason` is what calls fail with."""
        self._end(reason or Closed(f"the connection to {self.address} was closed"))
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """After a fork, in the child: let go of the socket, leaving the parent's side untouched.

        The descriptor is pointed at /dev/null instead of closed, so that its number is not used
        again while the parent's transport object, which we may not touch, still remembers it.
        """
        if self._lost is None:
            self._lost = Closed("this connection belongs to the parent process")
        self._pending.clear()
        self._gathered.clear()
        if self._transport is None or self._transport in _abandoned:
            return
        _abandoned.append(self._transport)
        sock = self._transport.get_extra_info("socket")
        descriptor = sock.fileno() if sock is not None else -1
        if descriptor >= 0:
            nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(nothing, descriptor, inheritable=False)
            os.close(nothing)

    def _end(self, reason: TernError) -> None:
        """Everything under way fails; happens once."""
        if self._lost is not None:
            return
        self._lost = reason
        if self._timer is not None:
            self._timer.cancel()
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            if isinstance(waiting, asyncio.Future):
                _fail(waiting, reason)
            else:
                self._loop.call_soon(_fail, waiting, reason)  # After `_on_lost`, as futures tell.
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._on_lost is not None:
            self._on_lost(reason)

    def give_up(self, reason: TernError) -> None:
        """There is no use in this connection any more: calls under way fail with the reason."""
        if self._lost is None:
            self._give_up(reason)

    def _give_up(self, reason: TernError, *, planned: bool = False) -> None:
        tell = log.debug if planned else log.warning
        tell("connection given up", server=self.address, reason=reason.message)
        self._end(reason)
        self._transport.abort()

    # Heartbeats.

    def _welcomed(self, welcome: Welcome) -> None:
        if welcome.protocol != PROTOCOL_VERSION:
            raise ProtocolError(
                f"{self.address} speaks protocol {welcome.protocol}, this client "
                f"{PROTOCOL_VERSION}; use matching versions of ternmq"
            )
        if welcome.heartbeat_ms <= 0:
            raise ProtocolError(f"{self.address} wants a heartbeat of {welcome.heartbeat_ms} ms")
        self.welcome = welcome
        heartbeat = welcome.heartbeat_ms / 1_000
        self._silence_max = max(HEARTBEATS_MISSED_MAX, int(SILENCE_MIN / heartbeat) + 1)
        self._timer = self._loop.call_later(heartbeat, self._beat, heartbeat)

    def _beat(self, heartbeat: float) -> None:
        """Counted in beats, not by a clock: a process that was stopped blames no server."""
        self._missed = 0 if self._heard else self._missed + 1
        self._heard = False
        if self._missed >= self._silence_max:
            silent = self._missed * heartbeat
            self._give_up(Unavailable(f"nothing heard from {self.address} for {silent:g} s"))
            return
        self.call(_PING)
        self._timer = self._loop.call_later(heartbeat, self._beat, heartbeat)

    # Arrivals.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        if self._lost is not None:  # Given up while connecting.
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost is not None:
            return
        self._heard = True
        pending = self._pending
        for frame in self._decoder.received(nbytes):
            if frame.flags == _ANSWER:
                future = pending.pop(frame.correlation, None)
                if future is None:
                    self._give_up(_unasked(self.address, frame))
                    return
                if not future.done():
                    future.set_result(frame.payload)
            else:
                self._take_other(frame)
                if self._lost is not None:
                    return
        if self._decoder.failed is not None:
            self._give_up(self._decoder.failed)

    def _take_other(self, frame: Frame) -> None:
        """A failure, a notice, or the reason for which the server is closing."""
        if frame.flags & _ERROR:
            try:
                error = read_failure(frame.payload)
            except ProtocolError as broken:
                self._give_up(broken)
                return
            future = self._pending.pop(frame.correlation, None)
            if future is not None:
                _fail(future, error)
            elif frame.correlation == 0:
                if isinstance(error, NotMaster):  # Whoever waits shall look for the master.
                    self._give_up(Unavailable(error.message), planned=True)
                elif isinstance(error, Closed):  # The server ends, and over TLS says so.
                    self._give_up(
                        Unavailable(f"{self.address} ends: {error.message}"), planned=True
                    )
                else:
                    self._give_up(error)
            else:
                self._give_up(_unasked(self.address, frame))
        elif frame.flags or frame.correlation:
            self._give_up(_unasked(self.address, frame))
        elif self._on_push is not None:
            self._on_push(frame)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        why = f" ({exc})" if exc is not None else ""
        lost = f"the connection to {self.address} was lost{why}"
        if self.certificate is not None and self.welcome is None:
            lost = lost_early(self.address)
        self._end(Unavailable(lost))
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._writable = self._new_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None


def _tls_options(tls: OutgoingTls, host: str, timeout: float) -> dict[str, Any]:
    return {
        "ssl": tls.context(),
        "server_hostname": host,
        "ssl_handshake_timeout": timeout,
        "ssl_shutdown_timeout": CLOSE_S,
    }


async def request(
    connection: Connection, command: int, record: Record, answer_type: type[A], *, timeout: float
) -> A:
    """Ask and wait, in msgpack both ways; `timeout` in seconds."""
    try:
        async with asyncio.timeout(timeout):
            payload = await connection.call(command, pack(record))
    except TimeoutError as error:
        name = Command(command).name
        raise Unavailable(
            f"{connection.address} did not answer {name} within {timeout:g} s"
        ) from error
    return unpack(payload, answer_type)


def _fail(waiting: "asyncio.Future[bytearray] | AnswerTaker", error: TernError) -> None:
    """Each gets an error of its own; asyncio does not warn if no task reads it."""
    if not waiting.done():
        waiting.set_exception(error.copy())
        if isinstance(waiting, asyncio.Future):
            waiting.exception()


def _unasked(address: str, frame: Frame) -> ProtocolError:
    return ProtocolError(
        f"{address} sent a frame nobody asked for (command {frame.command}, flags "
        f"{frame.flags:#x}, correlation {frame.correlation})"
    )
