"""A delay server as a process of its own: finds names and brokers through a meta server.

Parts start in the order written and stop in reverse: topics are known before a message can come,
the server listens before it is on the routes, and it is off the routes before it stops. Brokers may
come and go meanwhile; what is due waits for them.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.delay.server import serving_delay
from ternmq.discovery.registration import registered
from ternmq.node.addresses import delay_route
from ternmq.node.joining import joined
from ternmq.node.metrics_page import serving_metrics
from ternmq.storage.disk import Disk
from ternmq.wire.commands import DISPATCHER


@asynccontextmanager
async def serving_delay_alone(
    config: NodeConfig, url: str, *, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    route = delay_route(config)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(joined(url, DISPATCHER))
        delay = await stack.enter_async_context(
            serving_delay(
                config,
                directory=cluster.directory,
                address=route.address,
                clock=clock,
                disk=disk,
                url=url,
            )
        )
        registration = await stack.enter_async_context(
            registered(cluster.addresses, cluster.hello, route, member=delay.member)
        )
        delay.watch(lambda epoch: registration.say(epoch=epoch))
        await stack.enter_async_context(serving_metrics(config, [delay.figures], clock=clock))
        yield route.address
