"""A peer of a server with security on: its way in, and what stands between it and the handler.

Like `Peer`, with four things more: HELLO alone lets nobody in (`GuardedHandshake`), every frame is
checked before its handler sees it (`GuardedHandler`), lists are narrowed on their way out, and what
a user has here is counted for all its connections together (`UserUse`).
Without security no such peer is made, and nothing costs more than before.
"""

import hashlib
import secrets
from typing import Any, cast

import msgspec

from ternmq.core.errors import ProtocolError, TernError, Unauthorized, Unavailable
from ternmq.rpc.address import is_loopback
from ternmq.rpc.buffers import Buffer
from ternmq.rpc.connection_pool import ConnectionPool, Pause
from ternmq.rpc.guarded.answer_filter import NARROWED, narrowed
from ternmq.rpc.guarded.guard import Guard, address_of, not_app, state_of
from ternmq.rpc.guarded.peer_identity import (
    WHO,
    by_certificate,
    by_next_token,
    by_token,
    check_fresh,
    methods_of,
)
from ternmq.rpc.handshake import Handshake, read_hello
from ternmq.rpc.peer import Handler, Peer
from ternmq.security.access import scram
from ternmq.security.access.rights import Right, Rights
from ternmq.security.tls.door import TlsTerms
from ternmq.security.tls.peer_certificate import PeerCertificate
from ternmq.wire.actions import OF_NODES
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import (
    BY_CERTIFICATE,
    BY_NODE_SECRET,
    BY_SCRAM,
    BY_TOKEN,
    BY_USER_CERTIFICATE,
    Auth,
    Challenge,
    Hello,
    ProvenWelcome,
    ScramSalt,
    ScramStart,
    TokenRenewed,
    Welcome,
)
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack, unpack

_AUTH, _ONE_WAY = int(Command.AUTH), int(Flag.ONE_WAY)


class GuardedPeer(Peer):
    """A client, or a server of the cluster, that has to say who it is."""

    __slots__ = ("_guard", "asked", "known", "rights", "use", "used")

    def __init__(
        self,
        pool: ConnectionPool[Peer],
        handler: "GuardedHandler",
        *,
        tls: TlsTerms | None = None,
    ) -> None:
        super().__init__(pool, handler, tls=tls)
        self.rights = None
        self.use = None
        self._guard = handler.guard
        self._handshake = GuardedHandshake(self, pool, handler.guard)
        self.known: set[object] = set()
        """Which batches it may send, by what stands in their headers."""
        self.used: set[Right] = set()
        """What it waits for, by which right."""
        self.asked = 0
        """Requests that are not answered."""

    @property
    def private(self) -> bool:
        """Nobody listens on the way."""
        return self.tls is not None or is_loopback(self.address[0])

    @property
    def entitled(self) -> bool:
        rights = self.rights
        return super().entitled or (rights is not None and rights.may_grant)

    def answer(self, command: int, correlation: int, *buffers: Buffer) -> None:
        if command in NARROWED and self.rights is not None:
            buffers = (narrowed(command, b"".join(buffers), self.rights),)
        super().answer(command, correlation, *buffers)
        self._answered(command)

    def fail(self, command: int, correlation: int, error: TernError) -> None:
        super().fail(command, correlation, error)
        self._answered(command)

    # Its user's quota.

    def _answered(self, command: int) -> None:
        if self.asked and command > _AUTH and command not in OF_NODES:
            assert self.use is not None
            self.asked -= 1
            self.use.waiting -= 1

    def hold(self, size: int) -> None:
        super().hold(size)
        if self.use is not None and self.use.hold(size):
            self.use.stopped[self] = None
            self.pause(Pause.QUOTA)

    def release(self, size: int) -> None:
        super().release(size)
        if self.use is not None:
            for peer in self.use.release(size):
                peer.go_on_within_quota()

    def go_on_within_quota(self) -> None:
        self.resume(Pause.QUOTA)

    def _take_all(self, frames: list[Frame]) -> None:
        use = self.use
        if use is None or not use.quota.loop_percent:
            super()._take_all(frames)
            return
        began = self._pool.monotonic()
        super()._take_all(frames)
        rest_s = use.spend(self._pool.monotonic() - began)
        if rest_s > 0:
            self.rest(rest_s)

    def overdue(self, now: float) -> TernError | None:
        if self.rights is not None and self._guard.stale:
            return Unavailable("for a day nobody could say who may do what; is meta running?")
        token = None if self.rights is None else self.rights.token
        if token is not None and token.has_ended(self._guard.now_ms()):
            return Unauthorized("the token of this connection has ended")
        return super().overdue(now)

    def _take_control(self, frame: Frame) -> None:
        """Besides: AUTH with the next token of who came by one."""
        rights = self.rights
        if frame.command != Command.AUTH or rights is None or rights.token is None or frame.flags:
            super()._take_control(frame)
            return
        try:
            now = by_next_token(self._guard, self, unpack(frame.payload, Auth).proof)
        except ProtocolError as error:
            self.close(error)
        except TernError as error:
            self.fail(frame.command, frame.correlation, error)
        else:
            assert now.token is not None
            self.rights = now
            self.known.clear()
            left_ms = now.token.left_ms(self._guard.now_ms())
            self.answer(frame.command, frame.correlation, pack(TokenRenewed(ends_in_ms=left_ms)))


class GuardedHandler:
    """Implements `rpc.peer.Handler` around another one."""

    def __init__(self, handler: Handler, guard: Guard) -> None:
        self._handler = handler
        self.guard = guard

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        self.guard.admit(peer)
        try:
            return self._handler.welcome(peer, hello)
        except BaseException:
            self.guard.leave(peer)
            raise

    def frame(self, peer: Peer, frame: Frame) -> None:
        use = peer.use
        if use is not None and not frame.flags & _ONE_WAY:
            state_of(peer).asked += 1
            use.ask()
        self.guard.check(peer, frame)
        self._handler.frame(peer, frame)

    def lost(self, peer: Peer) -> None:
        use = peer.use
        if use is not None:
            use.waiting -= state_of(peer).asked
            state_of(peer).asked = 0
            use.stopped.pop(cast(GuardedPeer, peer), None)
        self.guard.leave(peer)
        self._handler.lost(peer)


class GuardedHandshake(Handshake):
    """The first frames where everybody proves who it is."""

    __slots__ = ("_begun", "_guard", "_peer", "_proof")

    def __init__(self, peer: GuardedPeer, pool: ConnectionPool[Any], guard: Guard) -> None:
        super().__init__(pool.gate)
        self._peer = peer
        self._guard = guard
        self._begun: tuple[Hello, str, bytes] | None = None
        """HELLO, the user, and the talk so far."""
        self._proof = b""

    @property
    def expects(self) -> Command:
        return super().expects if self._begun is None else Command.AUTH

    def step(
        self, frame: Frame, address: str, certificate: PeerCertificate | None = None
    ) -> Hello | Challenge:
        if self._begun is not None:
            if frame.command != Command.AUTH or frame.flags:
                raise ProtocolError("AUTH follows")
            return self._finish(unpack(frame.payload, Auth))
        if frame.command != Command.HELLO or frame.flags or super().expects is Command.AUTH:
            return super().step(
                frame, address, certificate
            )  # A server of the cluster, or a mistake.
        hello = read_hello(frame)
        if hello.method == BY_SCRAM:
            return self._begin(hello, bytes(frame.payload))
        if hello.method in (BY_NODE_SECRET, BY_CERTIFICATE):
            return super().step(frame, address, certificate)
        guard, peer = self._guard, self._peer
        if hello.method == BY_USER_CERTIFICATE or (not hello.method and certificate is not None):
            return self._enter(hello, by_certificate(guard, peer, hello))
        if hello.method == BY_TOKEN:
            return self._enter(hello, by_token(guard, peer, hello, private=peer.private))
        raise Unauthorized(WHO, methods=methods_of(peer))

    def sealed(self, welcome: Welcome) -> bytes:
        rights = self._peer.rights
        token = None if rights is None else rights.token
        if not self._proof and token is None:
            return super().sealed(welcome)
        left_ms = 0 if token is None else token.left_ms(self._guard.now_ms())
        fields = msgspec.structs.asdict(welcome)
        return pack(ProvenWelcome(**fields, proof=self._proof, ends_in_ms=left_ms))

    def _begin(self, hello: Hello, payload: bytes) -> Challenge:
        guard, peer = self._guard, self._peer
        start = unpack(hello.proof, ScramStart)
        if not peer.private:
            raise Unauthorized(
                "a password is used over TLS only, or on the machine of the server: connect by "
                "terns://…",
                methods=methods_of(peer),
            )
        if len(start.nonce) != scram.NONCE_SIZE or len(start.user) > 127:
            raise ProtocolError(f"a login begins with a user and {scram.NONCE_SIZE} bytes")
        check_fresh(guard)
        guard.check_failures(peer.address[0], start.user)
        verifier = guard.verifier(start.user)
        salt = ScramSalt(salt=verifier.salt, iterations=verifier.iterations)
        challenge = Challenge(
            nonce=secrets.token_bytes(scram.NONCE_SIZE), proof=pack(salt), role="broker"
        )
        shown = b"" if self._peer.tls is None else self._peer.tls.shown
        self._begun = hello, start.user, payload + pack(challenge) + shown
        return challenge

    def _finish(self, auth: Auth) -> Hello:
        assert self._begun is not None
        guard, peer, (hello, user, talk) = self._guard, self._peer, self._begun
        guard.check_failures(peer.address[0], user)  # Others may have failed since HELLO.
        verifier, rights = guard.verifier(user), guard.book.rights(user)
        if not scram.proves(verifier, talk, auth.proof) or rights is None:
            guard.failed_logins.note(peer.address[0], user)
            guard.audit.note_summed(
                "login", who="", address=peer.address[0], result="unauthorized", user=user
            )
            raise Unauthorized("user or password is wrong", methods=methods_of(peer))
        come = self._enter(hello, rights)
        self._proof = scram.server_proof(verifier.server_key, talk)
        return come

    def _enter(self, hello: Hello, rights: Rights) -> Hello:
        """The user is proven: as an application that it may be, with a session of its own."""
        peer = self._peer
        if not rights.is_app(hello.app):
            self._guard.audit.note_summed(
                "login",
                who=rights.name,
                address=address_of(peer),
                result="forbidden",
                app=hello.app[:80],
            )
            raise not_app(rights, hello.app)
        peer.rights = rights
        return msgspec.structs.replace(hello, session=bound_session(rights.name, hello.session))


def bound_session(user: str, session: bytes) -> bytes:
    """A session is its user's: the same bytes of another one are another session, so leases are
    adopted by nobody else, and what lists show of a session is of no use."""
    return hashlib.blake2b(
        session, digest_size=16, key=hashlib.sha256(user.encode()).digest()
    ).digest()
