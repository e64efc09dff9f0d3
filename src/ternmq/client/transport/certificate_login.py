"""How a client logs in by the certificate that it shows anyway, calling side: HELLO says as whom.

The handshake has proven it; the name is sent so that a certificate of somebody else is refused
with a reason, not taken for a stranger's work.
"""

from dataclasses import dataclass

import msgspec

from ternmq.core.ids import check_name
from ternmq.rpc.node_proof import Call, Channel
from ternmq.wire.messages.hello import BY_USER_CERTIFICATE, Hello, Welcome
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack


@dataclass(frozen=True, slots=True)
class CertificateLogin:
    """A user that its certificate names."""

    user: str

    def __post_init__(self) -> None:
        check_name("user", self.user)

    def greeting(self, hello: Hello) -> "CertificateGreeting":
        return CertificateGreeting(hello, self.user)


@dataclass(frozen=True, slots=True)
class CertificateGreeting:
    """The HELLO of such a client."""

    hello: Hello
    user: str

    async def greet(self, call: Call, address: str, channel: Channel) -> Welcome:
        proof = self.user.encode()
        hello = msgspec.structs.replace(self.hello, method=BY_USER_CERTIFICATE, proof=proof)
        return unpack(await call(Command.HELLO, pack(hello)), Welcome)
