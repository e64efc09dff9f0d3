"""The first frames of a connection, server side: who comes, and whether that has to be proven.

HELLO alone lets a client in. One with a method is answered with a Challenge, and AUTH has to
follow (`node_proof`), unless a certificate has proven it already. Decides only; answers and the
end of the connection are the peer's.
"""

from ternmq.core.errors import ProtocolError
from ternmq.rpc.node_proof import Challenged, NodeGate, NodeIdentity
from ternmq.security.tls.peer_certificate import PeerCertificate
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import (
    BY_CERTIFICATE,
    PROTOCOL_VERSION,
    Auth,
    Challenge,
    Hello,
    Welcome,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack


class Handshake:
    """The entrance of one connection, until it is let in."""

    __slots__ = ("_challenged", "_gate", "node")

    def __init__(self, gate: NodeGate) -> None:
        self._gate = gate
        self._challenged: Challenged | None = None
        self.node: NodeIdentity | None = None
        """Which server of the cluster it is."""

    @property
    def expects(self) -> Command:
        """The only command that it takes now."""
        return Command.HELLO if self._challenged is None else Command.AUTH

    def step(
        self, frame: Frame, address: str, certificate: PeerCertificate | None = None
    ) -> Hello | Challenge:
        """Who may come in, or what it has to answer first; raises why it may not."""
        if frame.command != self.expects or frame.flags:
            first = "the first frame must be HELLO" if self._challenged is None else "AUTH follows"
            raise ProtocolError(f"{first}, not {Command(frame.command).name}")
        if self._challenged is not None:
            auth = unpack(frame.payload, Auth)
            self.node = self._gate.prove(self._challenged, auth, address)
            return self._challenged.hello
        hello = read_hello(frame)
        if not hello.method:
            self.node = self._gate.unproven(hello, address)
            return hello
        if hello.method == BY_CERTIFICATE:
            self.node = self._gate.certified(hello, certificate)
            return hello
        self._challenged = self._gate.challenge(frame.payload, hello)
        return self._challenged.challenge

    def sealed(self, welcome: Welcome) -> bytes:
        """The answer to who may come in."""
        return pack(welcome)


def read_hello(frame: Frame) -> Hello:
    """Of a client that speaks our language."""
    hello = unpack(frame.payload, Hello)
    if hello.protocol != PROTOCOL_VERSION:
        raise ProtocolError(
            f"the client speaks protocol {hello.protocol}, this server {PROTOCOL_VERSION}; "
            "use matching versions of ternmq"
        )
    if len(hello.session) != 16:
        raise ProtocolError(f"a session has 16 bytes, not {len(hello.session)}")
    return hello
