"""The listening sockets of a server with TLS: who comes speaks TLS, or is told that it must.

Where plain text is let in as well (`make_plain`) it is handed on as it is.

Every connection is accepted here, and its first bytes are looked at without taking them. TLS is
handed to the loop with the context of this moment, so a new certificate or another CA holds for the
next one who comes and for nobody who is there. A client without TLS gets one frame that says what
to write instead. Until the handshake is done there is no peer: who is on the way is bounded
together with the peers, and in time.

Never blocks, never reads more of a stranger than a few bytes. Without TLS this module is not used:
the loop accepts by itself.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ternmq.core.errors import BadConfig, TernError, Unauthorized, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.security.tls.contexts import ServerContexts
from ternmq.security.tls.peer_certificate import PeerCertificate
from ternmq.security.tls.tls_errors import NO_CERTIFICATE, SPEAKS_TLS, begins_tls, reason_of
from ternmq.wire.frame import pack_header
from ternmq.wire.messages.hello import failure
from ternmq.wire.numbers import Command, Flag

log = get_logger()

BACKLOG = 1_024
FIRST_SIZE = 3
LOOK_AGAIN_S, LOOK_AGAIN_MAX_S = 0.02, 0.5
"""After some of the first bytes: what is there already keeps the socket readable, so one looks at
times, and more seldom the longer it takes."""
ACCEPT_AGAIN_S = 1.0
"""After an error of accepting itself: no more files, no memory."""
DROP_SIZE = 65_536


class IncomingTls(Protocol):
    """What a listener needs of TLS, asked for every connection."""

    @property
    def now(self) -> ServerContexts:
        """What holds at this moment, all of one swap."""

    @property
    def clients_must_show(self) -> bool: ...

    @property
    def trouble(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """On which a peer has come in over TLS."""

    shown: bytes
    """Hash of the certificate that this server showed."""
    must_show: bool
    """It has to have shown one as well. Asked after the handshake: a handshake that fails would
    leave a client without a word of why."""

    def refusal(self, certificate: PeerCertificate | None) -> Unauthorized | None:
        """Why who has shown this does not come in, if so."""
        return Unauthorized(NO_CERTIFICATE) if self.must_show and certificate is None else None


class Doorkeeper(Protocol):
    """What the door needs of the listener behind it."""

    def has_room(self, arriving: int, of_address: int) -> bool:
        """May one more come, beside so many who are on the way, so many of them from there?"""

    def report_stranger(self, address: tuple[str, int], reason: TernError) -> None:
        """A caller was sent away."""


class TlsDoor:
    """Contexts of one listener."""

    def __init__(
        self,
        tls: IncomingTls,
        keeper: Doorkeeper,
        make_peer: Callable[[TlsTerms], asyncio.BaseProtocol],
        *,
        arrive_s: float,
        linger_s: float,
        make_plain: Callable[[], asyncio.BaseProtocol] | None = None,
    ) -> None:
        """`arrive_s`: how long the way in may take; `linger_s`: reading why one is sent away;
        `make_plain`: who comes without TLS is let in as well."""
        self._tls = tls
        self._keeper = keeper
        self._make_peer = make_peer
        self._make_plain = make_plain
        self._arrive_s = arrive_s
        self._linger_s = linger_s
        self._loop = asyncio.get_running_loop()
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}
        self._of_address: dict[str, int] = {}
        self._background = Background("the TLS door", _failed)
        self._timers: set[asyncio.TimerHandle] = set()
        self.sockets: list[socket.socket] = []

    async def open(self, host: str, port: int, *, share: bool = False) -> None:
        """Bind and listen on every address of the host; raises `OSError`. `share`: other
        processes may listen there as well."""
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                sock = socket.socket(family, kind, protocol)
                if share:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                self.sockets.append(sock)
                _listen(sock, address)
        except OSError:
            self.close()
            raise
        for sock in self.sockets:
            self._loop.add_reader(sock.fileno(), self._background.callback(self._accept), sock)

    def close(self) -> None:
        """Nobody else comes; who is on the way may arrive."""
        for timer in self._timers:
            timer.cancel()
        for sock in self.sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self.sockets.clear()

    async def empty(self) -> None:
        """Cut who is still on the way. By its socket: a handshake that is cancelled leaves its
        transport behind."""
        for sock in self._arriving.values():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        if self._arriving:
            await asyncio.wait(tuple(self._arriving))

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                sock, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("cannot accept connections at present", reason=reason_of(error))
                self._loop.remove_reader(listening.fileno())
                self._timers.add(
                    self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again, listening)
                )
                return
            sock.setblocking(False)
            host = str(name[0])
            if self._keeper.has_room(len(self._arriving), self._of_address.get(host, 0)):
                self._come(sock, (host, int(name[1])))
            else:
                sock.close()

    def _accept_again(self, listening: socket.socket) -> None:
        self._timers.clear()
        if listening in self.sockets:
            self._loop.add_reader(
                listening.fileno(), self._background.callback(self._accept), listening
            )

    def _come(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host = address[0]
        self._of_address[host] = self._of_address.get(host, 0) + 1
        task = self._background.task(self._arrive(sock, address), name="tern-tls-handshake")
        self._arriving[task] = sock

        def gone(task: "asyncio.Task[None]") -> None:
            del self._arriving[task]
            self._of_address[host] -= 1
            if not self._of_address[host]:
                del self._of_address[host]

        task.add_done_callback(gone)

    async def _arrive(self, sock: socket.socket, address: tuple[str, int]) -> None:
        """From accepted to a peer, or to the end of it."""
        try:
            async with asyncio.timeout(self._arrive_s):
                first = await self._first_bytes(sock)
            if begins_tls(first):
                await self._shake_hands(sock)
                return
            if first and self._make_plain is not None:
                await self._loop.connect_accepted_socket(self._make_plain, sock)
                return
            if first:
                self._keeper.report_stranger(address, BadConfig(SPEAKS_TLS))
                async with asyncio.timeout(self._linger_s):
                    await self._tell_plain(sock)
        except ssl.SSLError as error:
            self._keeper.report_stranger(
                address, Unavailable(f"no TLS handshake: {reason_of(error)}")
            )
        except (TimeoutError, OSError) as error:
            if str(error):
                log.debug("a connection ended before TLS began", reason=reason_of(error))
        sock.close()  # A transport that has it keeps it open until it ends itself.

    async def _first_bytes(self, sock: socket.socket) -> bytes:
        """The first bytes, left where they are; empty: it hung up."""
        for pause in pauses():
            await self._readable(sock)
            first = sock.recv(FIRST_SIZE, socket.MSG_PEEK)
            if not first or len(first) == FIRST_SIZE:
                break
            await asyncio.sleep(pause)
        return first

    async def _readable(self, sock: socket.socket) -> None:
        waiter = self._loop.create_future()
        descriptor = sock.fileno()

        def ready() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self._loop.add_reader(descriptor, ready)
        try:
            await waiter
        finally:
            self._loop.remove_reader(descriptor)

    async def _shake_hands(self, sock: socket.socket) -> None:
        now = self._tls.now
        terms = TlsTerms(now.certificate.sha256, self._tls.clients_must_show)
        await self._loop.connect_accepted_socket(
            lambda: self._make_peer(terms),
            sock,
            ssl=now.incoming,
            ssl_handshake_timeout=self._arrive_s,
            ssl_shutdown_timeout=self._linger_s,
        )

    async def _tell_plain(self, sock: socket.socket) -> None:
        """Say it, half-close, and drop what comes until it hangs up: closing with unread bytes
        would make the kernel throw the answer away."""
        payload = failure(BadConfig(SPEAKS_TLS))
        header = pack_header(Command.NOTICE, Flag.ERROR, 0, len(payload))
        await self._loop.sock_sendall(sock, header + payload)
        with suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        while await self._loop.sock_recv(sock, DROP_SIZE):
            pass


def pauses() -> Iterator[float]:
    """Between looks at the first bytes; without an end."""
    pause = LOOK_AGAIN_S
    while True:
        yield pause
        pause = min(2 * pause, LOOK_AGAIN_MAX_S)


def _listen(sock: socket.socket, address: Any) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen(BACKLOG)


def _failed(error: TernError) -> None:
    """Logged already; the others come in all the same."""
