"""The all-in-one node while a block runs: registry, meta server, broker, delay server.

Parts start in the order written in `serving_node` and stop in the reverse order, so each part may
use every part above it for its whole life. A server is announced when it listens and withdrawn
before it stops. Who may use the data directory is decided elsewhere (the cli's lock).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from ternmq.broker.server import serve
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.delay.server import serving_delay
from ternmq.metrics.samples import Source
from ternmq.node.addresses import broker_route, delay_route, node_url
from ternmq.node.meta_role import serving_meta_role
from ternmq.node.metrics_server import serving_metrics
from ternmq.storage.files.disk import Disk


@asynccontextmanager
async def serving_node(
    config: NodeConfig, *, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run every role that there is; yields the url that clients use."""
    async with AsyncExitStack() as stack:
        meta = await stack.enter_async_context(serving_meta_role(config, clock=clock))
        route = broker_route(config)
        broker = await stack.enter_async_context(
            serve(
                config,
                directory=meta.directory,
                address=route.address,
                clock=clock,
                disk=disk,
                url=node_url(config),
            )
        )
        figures: list[Source] = [meta.figures, broker.figures]
        registrar = meta.handler.registrar
        present = await stack.enter_async_context(registrar.present(route, member=broker.member))
        broker.watch(lambda epoch: present.say(epoch=epoch))
        if config.delay_server:
            later = delay_route(config)
            delay = await stack.enter_async_context(
                serving_delay(
                    config,
                    directory=meta.directory,
                    address=later.address,
                    clock=clock,
                    disk=disk,
                    url=node_url(config),
                )
            )
            figures.append(delay.figures)
            waiting = await stack.enter_async_context(registrar.present(later, member=delay.member))
            delay.watch(lambda epoch: waiting.say(epoch=epoch))
        await stack.enter_async_context(serving_metrics(config, figures, clock=clock))
        yield node_url(config)
