"""The real node, in this process: for tests of applications that send and consume.

Same code as `tern up`, on free loopback ports, with its data in a temporary directory that goes
away. Not a fake: what passes here talks to a real broker over real sockets.
"""

import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ternmq.core.clock import Clock, SystemClock
from ternmq.core.errors import BadConfig
from ternmq.node.all_in_one import serving_node
from ternmq.node.config import build
from ternmq.node.node_secret import own_node_secret
from ternmq.storage.files.disk import Disk

TRIES = 20


@asynccontextmanager
async def node(
    *,
    data_dir: Path | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
    **settings: Any,
) -> AsyncIterator[str]:
    """Run a node while the block runs; yields its url. Settings: see docs/configuration.md."""
    with tempfile.TemporaryDirectory(prefix="tern-testing-") as temporary:
        directory, clock = data_dir or Path(temporary), clock or SystemClock()
        for attempt in range(TRIES):
            own = {"data_dir": directory, "ports": _free_ports(), "console": False}
            config = build(own, settings)
            secret = own_node_secret(config, clock)
            running = serving_node(config, secret=secret, clock=clock, disk=disk)
            try:
                url = await running.__aenter__()
            except BadConfig:
                if attempt + 1 == TRIES:
                    raise
                continue  # Somebody was faster with one of the ports.
            try:
                yield url
            finally:
                await running.__aexit__(None, None, None)
            return


def _free_ports() -> int:
    """A port whose two neighbours are free as well, a moment ago."""
    while True:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
                third.bind(("127.0.0.1", port + 2))
            except (OSError, OverflowError):
                continue
            if port < 65_000:
                return port
