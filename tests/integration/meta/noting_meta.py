"""A real meta server in this process, which notes what servers say of themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from ternmq.core.clock import Clock, SystemClock
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.server import serving_meta
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import ServerLimits
from ternmq.wire.frame import Frame
from ternmq.wire.messages.servers import Register
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack
from tests.node_greeting import SECRET


@dataclass
class Meta:
    address: str
    routes: RouteTable
    service: MetaDirectory
    heard: list[Register]

    def heartbeats(self) -> int:
        return len(self.heard)


class ListeningRouter(MetaRouter):
    """Notes what servers say of themselves."""

    def __init__(
        self, directory: MetaDirectory, routes: RouteTable, *, identity: MetaIdentity, clock: Clock
    ) -> None:
        super().__init__(directory, routes, identity=identity, clock=clock)
        self.heard: list[Register] = []

    def frame(self, peer: Peer, frame: Frame) -> None:
        if frame.command == Command.REGISTER:
            self.heard.append(unpack(frame.payload, Register))
        super().frame(peer, frame)


@asynccontextmanager
async def meta(
    registry: Path, port: int = 0, *, dead_after_ms: int = 10_000, heartbeat_ms: int = 20
) -> AsyncIterator[Meta]:
    clock = SystemClock()
    identity = MetaIdentity(
        node="n",
        version="0",
        address="",
        data_dir=registry.parent,
        started_at_ms=0,
        server_heartbeat_ms=heartbeat_ms,
    )
    async with serving_directory(
        lambda: SqlRegistry.open_sqlite(registry), clock=clock, dead_after_ms=dead_after_ms
    ) as service:
        routes = RouteTable(first_version=1)
        handler = ListeningRouter(service, routes, identity=identity, clock=clock)
        async with serving_meta(
            "127.0.0.1", port, handler, limits=ServerLimits(linger=0.1), clock=clock, secret=SECRET
        ) as listener:
            yield Meta(join_address(*listener.address), routes, service, handler.heard)
