"""A delay server as a process of its own: finds names and brokers through a meta server.

Brokers may come and go meanwhile; what is due waits for them.
"""

from contextlib import AbstractAsyncContextManager
from functools import partial

from ternmq.core.clock import Clock
from ternmq.delay.server import serving_delay
from ternmq.node.addresses import delay_place, delay_route
from ternmq.node.config import NodeConfig
from ternmq.node.joining.cluster_join import access_of
from ternmq.node.member_process import serving_member_alone
from ternmq.rpc.node_proof import NodeSecret
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.hello import DISPATCHER


def serving_delay_alone(
    config: NodeConfig,
    url: str,
    *,
    secret: NodeSecret | None,
    clock: Clock,
    disk: Disk | None = None,
) -> AbstractAsyncContextManager[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    route = delay_route(config)
    return serving_member_alone(
        config,
        partial(access_of, route, config.joined_url(url), secret),
        route,
        app=DISPATCHER,
        serve=partial(serving_delay, config.delay, delay_place(config)),
        clock=clock,
        disk=disk,
    )
