"""A member of a broker group as its own process: joined, listening, on the routes, with figures.

Parts start in the order written and stop in reverse: topics are known before a message can come,
the server listens before it is on the routes, and it is off the routes before it stops.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from ternmq.core.clock import Clock
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.directory import ClusterDirectory
from ternmq.metrics.samples import Source
from ternmq.node.config import NodeConfig
from ternmq.node.joining.cluster_join import joined
from ternmq.node.joining.registration import registered
from ternmq.node.metrics_server import serving_metrics
from ternmq.node.node_tls import tls_figures, using_tls
from ternmq.replication.roles.member_server import MemberServer
from ternmq.security.tls.server_tls import ServerTls
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.servers import Route


class Serve(Protocol):
    """Runs a server of one kind, at its place, while a block runs."""

    def __call__(
        self, *, directory: ClusterDirectory, clock: Clock, disk: Disk | None, access: ClusterAccess
    ) -> AbstractAsyncContextManager[MemberServer]: ...


@asynccontextmanager
async def serving_member_alone(
    config: NodeConfig,
    make_access: Callable[[ServerTls | None], ClusterAccess],
    route: Route,
    *,
    app: str,
    serve: Serve,
    clock: Clock,
    disk: Disk | None,
) -> AsyncIterator[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    async with AsyncExitStack() as stack:
        tls = await stack.enter_async_context(using_tls(config))
        access = make_access(tls)
        cluster = await stack.enter_async_context(joined(access, app))
        server = await stack.enter_async_context(
            serve(directory=cluster.directory, clock=clock, disk=disk, access=access)
        )
        heartbeats = await stack.enter_async_context(
            registered(
                cluster.addresses,
                cluster.greeting,
                route,
                member=server.member,
                guarded=config.meta.listener.security,
                cluster=cluster.known,
            )
        )
        server.watch(heartbeats.set_epoch)
        figures: list[Source] = [server.figures, *tls_figures(tls)]
        await stack.enter_async_context(serving_metrics(config, figures, clock=clock))
        yield route.address
