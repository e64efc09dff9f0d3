"""A broker as a process of its own: names, ids and its epoch come from a meta server.

It needs a meta server to start; once it runs it serves with what it knows while all of them are
away. It listens before it is on the routes and is off the routes before it stops.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ternmq.broker.server import serve
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.discovery.registration import registered
from ternmq.node.addresses import broker_route
from ternmq.node.joining import joined
from ternmq.node.metrics_page import serving_metrics
from ternmq.storage.disk import Disk
from ternmq.wire.commands import BROKER


@asynccontextmanager
async def serving_broker_alone(
    config: NodeConfig, url: str, *, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    route = broker_route(config)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(joined(url, BROKER))
        broker = await stack.enter_async_context(
            serve(
                config,
                directory=cluster.directory,
                address=route.address,
                clock=clock,
                disk=disk,
                url=url,
            )
        )
        registration = await stack.enter_async_context(
            registered(cluster.addresses, cluster.hello, route, member=broker.member)
        )
        broker.watch(lambda epoch: registration.say(epoch=epoch))
        await stack.enter_async_context(serving_metrics(config, [broker.figures], clock=clock))
        yield route.address
