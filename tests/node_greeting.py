"""Servers of a cluster, as tests play them: a secret, and the HELLO of one that knows it."""

from pathlib import Path

from ternmq.rpc.node_proof import NodeCredential, NodeGreeting, NodeIdentity, NodeSecret
from ternmq.wire.messages.hello import BROKER, DISPATCHER, PROTOCOL_VERSION, Hello
from ternmq.wire.messages.standings import BrokerGroupKind

SECRET = NodeSecret("what all servers of these tests know", "a test")


def greeting(
    group: str = "main", kind: BrokerGroupKind = "realtime", secret: NodeSecret = SECRET
) -> NodeGreeting:
    """Of a server of that broker group."""
    app = BROKER if kind == "realtime" else DISPATCHER
    hello = Hello(protocol=PROTOCOL_VERSION, app=app, version="0", session=bytes(16))
    return NodeGreeting(hello, NodeCredential(secret, NodeIdentity(kind, group)))


def secret_of(path: Path) -> NodeSecret:
    """That a server has made."""
    return NodeSecret(path.read_text(encoding="ascii"), str(path))
