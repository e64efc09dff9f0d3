"""The all-in-one node while a block runs: registry, meta server, broker, delay server.

Parts start in the order written in `serving_node` and stop in the reverse order, so each part may
use every part above it for its whole life. A server is announced when it listens and withdrawn
before it stops. Who may use the data directory is decided elsewhere (the cli's lock).
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from ternmq.broker.server import serve
from ternmq.core.clock import Clock
from ternmq.delay.server import serving_delay
from ternmq.metrics.samples import Source
from ternmq.node.addresses import broker_place, broker_route, delay_place, delay_route, node_url
from ternmq.node.config import NodeConfig
from ternmq.node.joining.cluster_join import access_of
from ternmq.node.member_process import Serve
from ternmq.node.meta_role import serving_meta_role
from ternmq.node.metrics_server import serving_metrics
from ternmq.node.node_tls import tls_figures, using_tls
from ternmq.rpc.node_proof import NodeSecret
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.servers import Route


@asynccontextmanager
async def serving_node(
    config: NodeConfig, *, secret: NodeSecret, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run every role that there is; yields the url that clients use."""
    url = node_url(config)
    broker = partial(serve, config.broker, broker_place(config))
    servers: list[tuple[Route, Serve]] = [(broker_route(config), broker)]
    if config.delay_server:
        delay = partial(serving_delay, config.delay, delay_place(config))
        servers.append((delay_route(config), delay))
    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(using_tls(config))
        meta = await stack.enter_async_context(
            serving_meta_role(config, secret=secret, clock=clock, tls=tls, console=config.console)
        )
        figures: list[Source] = [meta.figures, *tls_figures(tls)]
        for route, serving in servers:
            server = await stack.enter_async_context(
                serving(
                    directory=meta.directory,
                    clock=clock,
                    disk=disk,
                    access=access_of(route, url, secret, tls),
                )
            )
            figures.append(server.figures)
            present = await stack.enter_async_context(
                meta.handler.registrar.present(route, member=server.member)
            )
            server.watch(present.set_epoch)
        await stack.enter_async_context(serving_metrics(config, figures, clock=clock))
        yield url
