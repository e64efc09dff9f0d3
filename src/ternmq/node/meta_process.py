"""A meta server as a process of its own; several may share one registry."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.core.clock import Clock
from ternmq.node.addresses import node_url
from ternmq.node.config import NodeConfig
from ternmq.node.meta_role import OpenRegistry, serving_meta_role
from ternmq.node.metrics_server import serving_metrics
from ternmq.node.node_tls import tls_figures, using_tls
from ternmq.rpc.node_proof import NodeSecret
from ternmq.storage.files.disk import Disk


@asynccontextmanager
async def serving_meta_alone(
    config: NodeConfig,
    *,
    secret: NodeSecret,
    clock: Clock,
    open_registry: OpenRegistry | None = None,
    disk: Disk | None = None,
) -> AsyncIterator[str]:
    """Run one; yields the url that clients use. The registry is the one that the settings name
    unless another is handed in."""
    async with (
        using_tls(config) as tls,
        serving_meta_role(
            config, secret=secret, clock=clock, open_registry=open_registry, disk=disk, tls=tls
        ) as meta,
        serving_metrics(config, [meta.figures, *tls_figures(tls)], clock=clock),
    ):
        yield node_url(config)
