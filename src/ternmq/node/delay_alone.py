"""A delay server as a process of its own: finds names and brokers through a meta server.

Parts start in the order written and stop in reverse: topics are known before a message can come,
the server listens before it is on the routes, and it is off the routes before it stops. Brokers may
come and go meanwhile; what is due waits for them.
"""

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.delay.server import serving_delay
from ternmq.discovery.registration import registered
from ternmq.discovery.remote_directory import remote_directory
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.url import parse_url
from ternmq.node.embedded import delay_route
from ternmq.node.metrics_page import serving_metrics
from ternmq.storage.disk import Disk
from ternmq.wire.commands import PROTOCOL_VERSION, Hello

APP = "tern-delay"


@asynccontextmanager
async def serving_delay_alone(
    config: NodeConfig, url: str, *, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    addresses = parse_url(url)
    hello = Hello(
        protocol=PROTOCOL_VERSION,
        app=APP,
        version=version("ternmq"),
        session=secrets.token_bytes(16),
        host=socket.gethostname(),
        pid=os.getpid(),
    )
    route = delay_route(config)
    async with AsyncExitStack() as stack:
        cache = RouteCache(addresses, hello)
        stack.push_async_callback(cache.close)
        directory = await stack.enter_async_context(remote_directory(cache))
        delay = await stack.enter_async_context(
            serving_delay(config, directory=directory, brokers=url, clock=clock, disk=disk)
        )
        await stack.enter_async_context(registered(addresses, hello, route))
        await stack.enter_async_context(serving_metrics(config, [delay.figures], clock=clock))
        yield route.address
