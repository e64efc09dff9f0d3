"""The all-in-one node while a block runs: registry, meta server, broker, delay server.

Parts start in the order written in `serving_node` and stop in the reverse order, so each part may
use every part above it for its whole life. A server is announced when it listens and withdrawn
before it stops. Who may use the data directory is decided elsewhere (the cli's lock).
"""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from ternmq.broker.server import serve
from ternmq.core.clock import Clock
from ternmq.core.config import NodeConfig
from ternmq.core.errors import BadConfig
from ternmq.delay.server import serving_delay
from ternmq.discovery.url import format_url
from ternmq.meta.registry import Registry
from ternmq.meta.registry_sql import SqlRegistry
from ternmq.meta.registry_url import open_registry
from ternmq.meta.route_table import RouteTable
from ternmq.meta.scrape import registry_figures
from ternmq.meta.server import MetaHandler, MetaIdentity, serving_meta
from ternmq.meta.service import MetaService, serving_directory
from ternmq.metrics.samples import Samples, Source
from ternmq.node.metrics_page import serving_metrics
from ternmq.rpc.address import join_address
from ternmq.rpc.figures import server_figures
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.server import Listener
from ternmq.storage.disk import Disk
from ternmq.wire.commands import Route

ANY_ADDRESS = ("0.0.0.0", "::")
IDLE_SECONDS_MIN = 30.0


@asynccontextmanager
async def serving_node(
    config: NodeConfig, *, clock: Clock, disk: Disk | None = None
) -> AsyncIterator[str]:
    """Run every role that there is; yields the url that clients use."""
    async with AsyncExitStack() as stack:
        directory = await stack.enter_async_context(
            serving_directory(registry_opener(config), clock=clock)
        )
        routes = RouteTable(first_version=clock.now_ms())
        handler = _meta_handler(config, directory, routes, clock)
        listener = await stack.enter_async_context(_meta(config, handler, clock))
        broker = await stack.enter_async_context(
            serve(config, directory=directory, clock=clock, disk=disk)
        )

        async def meta_figures(out: Samples) -> None:
            server_figures(out, await handler.status(), listener)
            registry_figures(out, directory, routes, handler.registrar)

        figures: list[Source] = [meta_figures, broker.figures]
        route = Route(
            broker_group=config.broker_group,
            address=join_address(_advertised_host(config), config.broker_port),
        )
        routes.announce(route)
        stack.callback(routes.withdraw, route)
        if config.delay_server:
            delay = await stack.enter_async_context(
                serving_delay(
                    config, directory=directory, brokers=node_url(config), clock=clock, disk=disk
                )
            )
            figures.append(delay.figures)
            later = delay_route(config)
            await handler.registrar.announce(later)
            stack.callback(routes.withdraw, later)
        await stack.enter_async_context(serving_metrics(config, figures, clock=clock))
        yield node_url(config)


def node_url(config: NodeConfig) -> str:
    host = "127.0.0.1" if config.host in ANY_ADDRESS else config.host
    return format_url([join_address(host, config.meta_port)])


def delay_route(config: NodeConfig) -> Route:
    """What clients are told about the delay server of this config."""
    address = join_address(_advertised_host(config), config.delay_port)
    return Route(broker_group=config.broker_group, address=address, kind="delay")


def _meta_handler(
    config: NodeConfig, directory: MetaService, routes: RouteTable, clock: Clock
) -> MetaHandler:
    identity = MetaIdentity(
        node=socket.gethostname(),
        version=version("ternmq"),
        address=join_address(_advertised_host(config), config.meta_port),
        data_dir=config.data_dir,
        started_at_ms=clock.now_ms(),
        heartbeat_ms=config.heartbeat_ms,
    )
    return MetaHandler(directory, routes, identity=identity, clock=clock)


def _meta(
    config: NodeConfig, handler: MetaHandler, clock: Clock
) -> AbstractAsyncContextManager[Listener]:
    limits = ServerLimits(
        connections_max=config.connections_max,
        inbound_max=config.inbound_max,
        server_inbound_max=config.inbound_total_max,
        idle_timeout=max(IDLE_SECONDS_MIN, 3 * config.heartbeat_ms / 1000),
    )
    return serving_meta(config.host, config.meta_port, handler, limits=limits, clock=clock)


def registry_opener(config: NodeConfig) -> Callable[[], Registry]:
    """The registry that the settings name; by default a file in the data directory."""
    if config.registry:
        return lambda: open_registry(config.registry)
    path = _registry_path(config)
    return lambda: SqlRegistry.open_sqlite(path)


def _registry_path(config: NodeConfig) -> Path:
    folder = config.data_dir / "meta"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(f"cannot make {folder}: {error.strerror}") from error
    return folder / "registry.db"


def _advertised_host(config: NodeConfig) -> str:
    """The address that clients are told; a machine that listens everywhere is known by its name."""
    if config.advertised_host:
        return config.advertised_host
    return socket.gethostname() if config.host in ANY_ADDRESS else config.host
