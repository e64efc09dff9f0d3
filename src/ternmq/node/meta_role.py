"""A meta server while a block runs: registry, directory, routes, listener."""

import secrets
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig
from ternmq.core.lifecycle import background
from ternmq.core.process import VERSION
from ternmq.discovery.server_guard import guarding
from ternmq.meta.connected_clients import ConnectedClients
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.registries import url
from ternmq.meta.registries.registry import Registry
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.server import serving_meta
from ternmq.metrics.samples import Samples
from ternmq.node.addresses import meta_address
from ternmq.node.config import NodeConfig
from ternmq.node.first_admin import with_admin
from ternmq.node.meta_prometheus import registry_figures
from ternmq.node.seen_standings import SeenStandings
from ternmq.rpc.node_proof import NodeSecret
from ternmq.rpc.prometheus import server_figures
from ternmq.rpc.server import Listener
from ternmq.security.tls.server_tls import ServerTls
from ternmq.storage.files.disk import Disk, RealDisk

OpenRegistry = Callable[[], Registry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """A running meta server, as its owner sees it."""

    directory: MetaDirectory
    routes: RouteTable
    handler: MetaRouter
    listener: Listener

    async def figures(self, out: Samples) -> None:
        server_figures(out, await self.handler.status(), self.listener)
        registry_figures(out, self.directory, self.routes, self.handler.registrar)


@asynccontextmanager
async def serving_meta_role(
    config: NodeConfig,
    *,
    secret: NodeSecret,
    clock: Clock,
    open_registry: OpenRegistry | None = None,
    disk: Disk | None = None,
    tls: ServerTls | None = None,
    console: bool = False,
) -> AsyncIterator[Meta]:
    """Names first, then listen. `disk` is for what it notes itself; with a registry that is handed
    in it notes nothing without one. `console`: one runs beside it, and needs a user."""
    security = config.meta.listener.security
    opened = open_registry or registry_opener(config)
    async with (
        serving_directory(
            with_admin(opened, config, clock, console=console) if security else opened,
            clock=clock,
            dead_after_ms=config.meta.server_dead_after_ms,
            topics_max=config.meta.topics_max,
            refresh_ms=config.meta.registry_refresh_ms,
        ) as directory,
        _seen_standings(directory, config, disk or (None if open_registry else RealDisk())),
        guarding(
            directory,
            listener=config.meta.listener,
            data_dir=config.data_dir,
            server="meta",
            secret=secret,
            clock=clock,
        ) as guard,
    ):
        routes = RouteTable(first_version=first_version(clock))
        identity = MetaIdentity(
            node=socket.gethostname(),
            version=VERSION,
            address=meta_address(config),
            data_dir=config.data_dir,
            started_at_ms=clock.now_ms(),
            heartbeat_ms=config.meta.listener.heartbeat_ms,
            server_heartbeat_ms=config.meta.server_heartbeat_ms,
            insecure=config.exposed,
            tls=tls,
        )
        clients = ConnectedClients(directory.show_clients)
        shown = clients if config.meta.registry_clients else None
        handler = MetaRouter(
            directory, routes, identity=identity, clock=clock, guard=guard, clients=shown
        )
        async with (
            background(**{"clients": clients.run} if shown else {}),
            serving_meta(
                config.host,
                config.meta_port,
                handler,
                limits=config.meta.listener.limits,
                clock=clock,
                secret=secret,
                tls=tls,
            ) as listener,
        ):
            yield Meta(directory=directory, routes=routes, handler=handler, listener=listener)


@asynccontextmanager
async def _seen_standings(
    directory: MetaDirectory, config: NodeConfig, disk: Disk | None
) -> AsyncIterator[None]:
    """Hold what was seen against the registry, then write down what is seen."""
    if disk is None:  # A registry of a test, on no disk.
        yield
        return
    disk.mkdir(config.data_dir)
    seen = SeenStandings(directory, config.data_dir / "standings-seen", disk)
    await seen.check()
    async with background(seen=seen.run):
        yield


def first_version(clock: Clock) -> int:
    """Larger than that of every earlier start, and not that of another meta server: a client that
    moves from one to the other must not take what is new for what it knows."""
    return clock.now_ms() << 20 | secrets.randbits(20)


def registry_opener(config: NodeConfig) -> OpenRegistry:
    """The registry that the settings name; by default a file in the data directory."""
    if config.meta.registry:
        return lambda: url.open_registry(config.meta.registry)
    path = _registry_path(config)
    return lambda: SqlRegistry.open_sqlite(path)


def _registry_path(config: NodeConfig) -> Path:
    folder = config.data_dir / "meta"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadConfig(f"cannot make {folder}: {error.strerror}") from error
    return folder / "registry.db"
