"""How a server reaches the other servers of its cluster: where meta servers are, and its proof."""

import os
import secrets
import socket
from dataclasses import dataclass

from ternmq.core.process import VERSION
from ternmq.rpc.node_proof import Greeting, NodeCredential, NodeGreeting, NodeSecret, over
from ternmq.security.tls.server_tls import ServerTls
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How one server reaches the others of its cluster, while it runs."""

    url: str = ""
    """The meta servers; empty: it finds nobody."""
    credential: NodeCredential | None = None
    """None: it proves nothing, so other servers take it for a client."""
    tls: ServerTls | None = None
    """None: everything is in the clear."""

    @property
    def secret(self) -> NodeSecret | None:
        return None if self.credential is None else self.credential.secret

    @property
    def cluster(self) -> str:
        """By which certificates prove who is a server; empty: they do not."""
        return "" if self.tls is None else self.tls.cluster

    def greeting(self, app: str) -> Greeting:
        """How this process says hello; each call is another session."""
        hello = new_hello(app)
        known = hello if self.credential is None else NodeGreeting(hello, self.credential)
        return over(known, self.tls)


def new_hello(app: str) -> Hello:
    """Of this process, with a session of its own."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        app=app,
        version=VERSION,
        session=secrets.token_bytes(16),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
