"""How servers of one cluster prove to each other who they are: by a secret that is never sent.

All servers of a cluster share one *node secret*. Who connects sends random bytes and who it is
(HELLO), who answers adds random bytes of its own and a proof (Challenge), then the first proves
itself (AUTH) and is let in. A proof is an HMAC-SHA256, by the secret, over all of that HELLO, the
bytes of the other side and who answers; so it is of use for this connection only, in this
direction, and neither side can be anybody else by repeating what it heard. Clients send no proof
and are let in by the answer to HELLO.

Servers of release 0.1 know no proof. While a cluster is upgraded one process after the other, the
settings may let them in and be let in by them until a time (`NodeSecret.waived`, decision 0027).

Over TLS, with certificates that name servers (`security/tls/node_name`), the certificate is the
proof: HELLO says which of its servers comes, and no secret is needed or accepted.

Never gives a proof to a server that has not given its own first. Does not hide or sign what is
sent afterwards: who can change bytes on the way is kept out by TLS, or without it by the network.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from ternmq.core.errors import BadConfig, ProtocolError, TernError, Unauthorized
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.security.tls.client_tls import OutgoingTls
from ternmq.security.tls.node_name import NodeName, node_names
from ternmq.security.tls.peer_certificate import PeerCertificate
from ternmq.wire.messages.hello import (
    BROKER,
    BY_CERTIFICATE,
    BY_NODE_SECRET,
    DISPATCHER,
    OF_NODES,
    Auth,
    Challenge,
    Hello,
    NodeClaim,
    ServerRole,
    Welcome,
)
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.record import pack, unpack

NONCE_SIZE = 32
SECRET_SIZE_MIN = 32
REFUSED_LOGGED_S = 10.0
ANY_GROUP = ""
"""The broker group of a server that proved nothing: it may say that it is of any."""

_EARLIER: dict[str, BrokerGroupKind] = {BROKER: "realtime", DISPATCHER: "delay"}
_BY_SERVER, _BY_CLIENT = "tern node 1: answers", "tern node 1: asks"

log = get_logger()


def _never() -> bool:
    return False


class NodeSecret:
    """What all servers of a cluster know, and nobody else. Never printed."""

    __slots__ = ("_key", "source", "waived")

    def __init__(self, text: str, source: str, waived: Callable[[], bool] = _never) -> None:
        key = text.strip().encode()
        if len(key) < SECRET_SIZE_MIN:
            raise BadConfig(
                f"the node secret in {source} has {len(key)} characters; at least "
                f"{SECRET_SIZE_MIN} are needed, best random ones: openssl rand -hex 32"
            )
        self._key = key
        self.source = source
        """The file that it is from."""
        self.waived = waived
        """Whether servers of a release without proofs are believed now."""

    def __repr__(self) -> str:
        return f"NodeSecret(***, {self.source!r})"

    def derived(self, label: str) -> bytes:
        """Another secret that all servers of the cluster come to."""
        return hmac.digest(self._key, label.encode(), "sha256")

    def proof(self, label: str, hello: bytes, challenge: Challenge) -> bytes:
        """Proves that the secret is known to whoever says this, in this conversation."""
        parts = (label, hello, challenge.nonce, challenge.role, challenge.broker_group)
        return hmac.digest(self._key, msgspec.msgpack.encode(parts), "sha256")


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Which server a peer has proven to be."""

    kind: BrokerGroupKind
    broker_group: str

    def check_group(self, kind: str, broker_group: str) -> None:
        """A server speaks for its own broker group only."""
        own = self.broker_group
        if kind != self.kind or own not in (broker_group, ANY_GROUP):
            raise Unauthorized(
                f"a {self.kind} server of {self.broker_group!r} does not speak for "
                f"{broker_group!r} ({kind})"
            )


@dataclass(frozen=True, slots=True)
class NodeCredential:
    """Who a server is, and the secret by which it proves it; None: its certificate does."""

    secret: NodeSecret | None
    identity: NodeIdentity


class ProvenPeer(Protocol):
    """A peer, as far as it is asked who it is."""

    node: NodeIdentity | None


def proven(peer: ProvenPeer) -> NodeIdentity:
    """Which server this is; raises `Unauthorized` where it is none."""
    if peer.node is None:
        raise Unauthorized("only servers of the cluster ask this, and they prove that they are")
    return peer.node


# -- who connects


@dataclass(frozen=True, slots=True)
class NodeGreeting:
    """The HELLO of a server, made anew for every connection."""

    hello: Hello
    credential: NodeCredential

    def begin(self) -> "NodeOpening":
        secret = self.credential.secret
        assert secret is not None, "proven by the certificate: nothing to begin"
        return NodeOpening(self._claim(BY_NODE_SECRET, secrets.token_bytes(NONCE_SIZE)), secret)

    def certified(self) -> bytes:
        """The HELLO of a server that its certificate proves; answered with Welcome at once."""
        return self._claim(BY_CERTIFICATE, b"")

    def _claim(self, method: str, nonce: bytes) -> bytes:
        who = self.credential.identity
        claim = NodeClaim(nonce=nonce, kind=who.kind, broker_group=who.broker_group)
        return pack(msgspec.structs.replace(self.hello, method=method, proof=pack(claim)))


Call = Callable[[int, bytes], Awaitable[bytearray]]
"""Sends a request; what it returns is the answer's payload."""


class Channel(NamedTuple):
    """What a proof is given over."""

    private: bool
    """Nobody listens on the way."""
    shown: bytes = b""
    """Hash of the certificate that the server showed; empty without TLS."""


class UserProof(Protocol):
    """A client that proves who it is (`client/transport/user_login.py`)."""

    async def greet(self, call: Call, address: str, channel: Channel) -> Welcome: ...


@dataclass(frozen=True, slots=True)
class TlsGreeting:
    """One of them, said over TLS."""

    greeting: Hello | NodeGreeting | UserProof
    tls: OutgoingTls


Greeting = Hello | NodeGreeting | UserProof | TlsGreeting
"""How a connection is begun: by a client, by one that logs in, by a server of the cluster; in the
clear or not."""


def over(greeting: Hello | NodeGreeting | UserProof, tls: OutgoingTls | None) -> Greeting:
    """The greeting over TLS, where there is TLS."""
    return greeting if tls is None else TlsGreeting(greeting, tls)


class NodeOpening:
    """One connection that is being opened by a server."""

    def __init__(self, hello: bytes, secret: NodeSecret) -> None:
        self.hello = hello
        self._secret = secret

    def let_in(self, payload: bytes | bytearray) -> Welcome | None:
        """By a server that asks for no proof, while such are believed."""
        if not self._secret.waived():
            return None
        try:
            return unpack(payload, Welcome)
        except ProtocolError:
            return None

    def answer(self, payload: bytes | bytearray, address: str) -> tuple[Auth, TernError | None]:
        """What to answer to a Challenge, and what is wrong with it."""
        try:
            challenge = unpack(payload, Challenge)
        except ProtocolError as error:
            raise ProtocolError(
                f"{address} asks servers for no proof: it is of an earlier release; set "
                "unproven_servers_until while the cluster is upgraded (docs/day-two.md), or stop "
                "all its servers and start them with one release"
            ) from error
        expected = self._secret.proof(_BY_SERVER, self.hello, challenge)
        if not hmac.compare_digest(expected, challenge.proof):
            return Auth(proof=b""), Unauthorized(
                f"{address} has another node secret than this server, whose is in "
                f"{self._secret.source}; all servers of a cluster share one: give this one a copy "
                "of the meta servers' (node_secret_file), and start it again"
            )
        return Auth(proof=self._secret.proof(_BY_CLIENT, self.hello, challenge)), None


# -- who answers


@dataclass(frozen=True, slots=True)
class Challenged:
    """A peer that said hello as a server and has to prove it."""

    hello: Hello
    identity: NodeIdentity
    challenge: Challenge
    expected: bytes


class NodeGate:
    """Lets servers of the cluster into one listener: by the secret, or, of a `cluster` that its
    certificates name, by the certificate only. Without both it lets in none."""

    def __init__(
        self,
        secret: NodeSecret | None,
        role: ServerRole,
        broker_group: str = "",
        *,
        now: Callable[[], float],
        cluster: str = "",
    ) -> None:
        self._secret = None if cluster else secret
        self._cluster = cluster
        self._role: ServerRole = role
        self._group = broker_group
        self._now = now
        self._logged_at = -REFUSED_LOGGED_S
        self._left_out = 0
        self.refused = 0
        """So many servers came without the right secret."""

    def challenge(self, payload: bytes | bytearray, hello: Hello) -> Challenged:
        """The second step of a HELLO with a method; raises why there is none."""
        if hello.method != BY_NODE_SECRET:
            raise Unauthorized(
                f"the method {hello.method[:40]!r} is not known here", methods=[BY_NODE_SECRET]
            )
        if self._secret is None:
            raise Unauthorized(
                "servers of this cluster prove themselves by their certificates: set tls = true "
                "and the files of tern secure cert"
                if self._cluster
                else "this server has no node secret, so no other server can join it"
            )
        claim = unpack(hello.proof, NodeClaim)
        if len(claim.nonce) != NONCE_SIZE or not hello.app.startswith(OF_NODES):
            raise ProtocolError(f"a server begins with {NONCE_SIZE} bytes and a name of ours")
        check_name("broker group", claim.broker_group)
        challenge = Challenge(
            nonce=secrets.token_bytes(NONCE_SIZE),
            proof=b"",
            role=self._role,
            broker_group=self._group,
        )
        hello_bytes = bytes(payload)
        own = self._secret.proof(_BY_SERVER, hello_bytes, challenge)
        return Challenged(
            hello,
            NodeIdentity(claim.kind, claim.broker_group),
            msgspec.structs.replace(challenge, proof=own),
            self._secret.proof(_BY_CLIENT, hello_bytes, challenge),
        )

    def certified(self, hello: Hello, certificate: PeerCertificate | None) -> NodeIdentity:
        """Who it is by its certificate; raises `Unauthorized` where that names another server."""
        claim = unpack(hello.proof, NodeClaim)
        if not hello.app.startswith(OF_NODES):
            raise ProtocolError("a server begins with a name of ours")
        wanted = NodeName(self._cluster, claim.kind, claim.broker_group)
        if not self._cluster:
            raise Unauthorized(
                "the certificate of this server names no cluster, so it knows no server by one: "
                "tern secure cert makes one that does"
            )
        names = () if certificate is None else node_names(certificate)
        if wanted in names:
            return NodeIdentity(claim.kind, claim.broker_group)
        owner = ", ".join(name.uri for name in names) or "no server"
        raise Unauthorized(
            f"this certificate is for {owner}, not for {wanted.uri[:300]}; tern secure cert makes "
            "one for it"
        )

    def unproven(self, hello: Hello, peer: str) -> NodeIdentity | None:
        """Who comes without a proof: a client (None), or a server of an earlier release, while
        such are believed. Nobody else can have the name of a server."""
        if not hello.app.startswith(OF_NODES):
            return None
        if self._secret is None or not self._secret.waived() or hello.app not in _EARLIER:
            raise Unauthorized(
                f"names that begin with {OF_NODES!r} are for servers of the cluster, and this one "
                "proves nothing; is it of an earlier release? unproven_servers_until lets those "
                "in while the cluster is upgraded (docs/day-two.md)"
            )
        log.warning("a server that proves nothing is let in", peer=peer, version=hello.version)
        return NodeIdentity(_EARLIER[hello.app], ANY_GROUP)

    def prove(self, challenged: Challenged, auth: Auth, peer: str) -> NodeIdentity:
        """Who it is; raises `Unauthorized` where the proof is wrong."""
        if hmac.compare_digest(challenged.expected, auth.proof):
            return challenged.identity
        self._note_refused(challenged.identity, peer)
        raise Unauthorized(
            "this server and yours have different node secrets; all servers of a cluster share one"
        )

    def _note_refused(self, who: NodeIdentity, peer: str) -> None:
        """One line for many: a server that is refused tries again all the time."""
        self.refused += 1
        now = self._now()
        if now - self._logged_at < REFUSED_LOGGED_S:
            self._left_out += 1
            return
        log.warning(
            "a server was refused: it has another node secret; give it a copy of ours and start "
            "it again",
            peer=peer,
            kind=who.kind,
            broker_group=who.broker_group,
            secret_file=self._secret.source if self._secret is not None else "",
            left_out=self._left_out,
        )
        self._logged_at, self._left_out = now, 0
