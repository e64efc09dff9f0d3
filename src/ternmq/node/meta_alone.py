"""A meta server as a process of its own; several may share one registry."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.node.addresses import node_url
from ternmq.node.meta_role import serving_meta_role
from ternmq.node.metrics_page import serving_metrics


@asynccontextmanager
async def serving_meta_alone(config: NodeConfig, *, clock: Clock) -> AsyncIterator[str]:
    """Run one; yields the url that clients use."""
    async with (
        serving_meta_role(config, clock=clock) as meta,
        serving_metrics(config, [meta.figures], clock=clock),
    ):
        yield node_url(config)
