"""The HELLO of a server that opens a connection to another one."""

import os
import secrets
import socket

from ternmq.core.process import VERSION
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello


def server_hello(app: str) -> Hello:
    """Of this process; each call is another session."""
    return Hello(
        protocol=PROTOCOL_VERSION,
        app=app,
        version=VERSION,
        session=secrets.token_bytes(16),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
