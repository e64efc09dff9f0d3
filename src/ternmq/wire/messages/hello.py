"""How a connection begins, and how a request fails: hello, welcome, notices, failures.

Hot commands carry bytes: PUBLISH's payload is one batch, its answer is `PUBLISHED`; the answers of
PULL and READ are `DELIVERED` followed by delivery envelopes, or by what was left out: a list of
`LeftOut`. Everything else is msgpack of the records in this folder (arrays, fields in order), so a
field may be added at the end with a default and old peers go on working. An answer with the ERROR
flag carries `Failure`.
"""

from typing import Any, Literal

from ternmq.core.errors import TernError, from_code
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.record import Number, Record, pack, unpack

PROTOCOL_VERSION = 1


DISPATCHER = "%delay"
"""The application that a delay server is, towards the others."""


BROKER = "%broker"
"""And a broker, towards meta servers."""

OF_NODES = "%"
"""The names of applications that are servers begin so; they have to prove it."""

BY_NODE_SECRET = "node"
"""The method of proof that servers of one cluster use among themselves."""

BY_CERTIFICATE = "node-cert"
"""The same over TLS: the certificate is the proof, and there is no second step."""


BY_SCRAM = "scram"
"""The method of people and applications: a password that is never sent."""

BY_USER_CERTIFICATE = "cert"
"""Over TLS: the certificate names the user. `proof` is the name that the client expects, or empty;
without any method a certificate that names a user will do as well."""


BY_TOKEN = "token"
"""A token in HELLO, over TLS or on one machine; AUTH brings the next one before it ends."""


class Failure(Record, frozen=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class Empty(Record, frozen=True):
    """A request or answer without content."""


ServerRole = Literal["meta", "broker", "delay"]


class Hello(Record, frozen=True):
    """The first frame of every connection."""

    protocol: Number
    app: str
    version: str
    session: bytes
    """16 random bytes, kept over reconnects; a forked child has its own."""
    host: str = ""
    pid: Number = 0
    method: str = ""
    """How the sender proves who it is; empty: not at all, and HELLO is answered with Welcome."""
    proof: bytes = b""
    """What the method begins with; of a server a packed `NodeClaim`."""


class NodeClaim(Record, frozen=True):
    """Which server says hello, with what the other side has to prove itself on."""

    nonce: bytes
    """32 random bytes, of this connection only."""
    kind: BrokerGroupKind
    broker_group: str


class Challenge(Record, frozen=True):
    """The answer to a HELLO with a method: who answers, and that it knows the secret."""

    nonce: bytes
    """32 random bytes, of this connection only."""
    proof: bytes
    role: ServerRole
    broker_group: str = ""


class Auth(Record, frozen=True):
    """Answered with Welcome."""

    proof: bytes
    """Empty: the proof of the server was wrong, so it gets none."""


class ScramStart(Record, frozen=True):
    """What a person or application begins with, as `proof` of its HELLO."""

    user: str
    nonce: bytes
    """32 random bytes, of this connection only."""


class ScramSalt(Record, frozen=True):
    """What the proof is worked out with, as `proof` of a Challenge."""

    salt: bytes
    iterations: Number


class Welcome(Record, frozen=True):
    protocol: Number
    version: str
    role: ServerRole
    node: str
    broker_group: str = ""
    epoch: Number = 0
    heartbeat_ms: Number = 3_000
    batch_size_max: Number = 0
    cluster: str = ""
    """Of a meta server: whose registry it has. Empty: a release that does not say it."""


class ProvenWelcome(Welcome, frozen=True):
    """To a user who proved who it is: the server proves that it knew the user before."""

    proof: bytes = b""
    ends_in_ms: Number = 0
    """So long the token is good by which it came; 0: there is no such end."""


class TokenStart(Record, frozen=True):
    """What a token is shown with, as `proof` of HELLO."""

    token: str
    user: str = ""
    """Whom the client takes it to be of; empty: whomever it names."""


class TokenRenewed(Record, frozen=True):
    """The answer to AUTH with another token, on a connection that stands."""

    ends_in_ms: Number


class Notice(Record, frozen=True):
    kind: Literal["stopping", "leases"]
    """leases: some were taken back (a reset); RENEW says which."""
    text: str = ""


def failure(error: TernError) -> bytes:
    """An error as it travels. Details that cannot are no reason to lose the error itself."""
    try:
        return pack(Failure(code=error.code, message=error.message, details=error.details))
    except TypeError:
        return pack(Failure(code=error.code, message=error.message))


def read_failure(payload: bytes | bytearray | memoryview) -> TernError:
    """The error a peer answered with, ready to be raised."""
    failure = unpack(payload, Failure)
    error = from_code(failure.code, failure.message)
    error.details = failure.details  # Not as keywords: a peer's names may be our parameters' names.
    return error
