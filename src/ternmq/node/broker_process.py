"""A broker as a process of its own: names, ids and its epoch come from a meta server.

It needs a meta server to start; once it runs it serves with what it knows while all of them are
away.
"""

from contextlib import AbstractAsyncContextManager
from functools import partial

from ternmq.broker.server import serve
from ternmq.core.clock import Clock
from ternmq.node.addresses import broker_place, broker_route
from ternmq.node.config import NodeConfig
from ternmq.node.joining.cluster_join import access_of
from ternmq.node.member_process import serving_member_alone
from ternmq.rpc.node_proof import NodeSecret
from ternmq.storage.files.disk import Disk
from ternmq.wire.messages.hello import BROKER


def serving_broker_alone(
    config: NodeConfig,
    url: str,
    *,
    secret: NodeSecret | None,
    clock: Clock,
    disk: Disk | None = None,
) -> AbstractAsyncContextManager[str]:
    """Run one; yields its address once a meta server tells clients about it."""
    route = broker_route(config)
    return serving_member_alone(
        config,
        partial(access_of, route, config.joined_url(url), secret),
        route,
        app=BROKER,
        serve=partial(serve, config.broker, broker_place(config)),
        clock=clock,
        disk=disk,
    )
