"""Registering with real meta servers, and topics over the network."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ternmq.core.clock import Clock, SystemClock
from ternmq.core.errors import AlreadyExists, Unavailable
from ternmq.discovery.routes import RouteCache
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.server import serving_meta
from ternmq.node.joining import heartbeat, registration, remote_directory
from ternmq.node.joining.registration import registered
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import ServerLimits
from ternmq.wire.frame import Frame
from ternmq.wire.messages.servers import Register, Route
from ternmq.wire.messages.standings import Member
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack
from tests.node_greeting import SECRET, greeting
from tests.waiting import until

HELLO = greeting("later", "delay")
ROUTE = Route(broker_group="later", address="127.0.0.1:1", kind="delay")


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


async def test_a_server_registers_with_every_meta_server_and_leaves(tmp_path: Path) -> None:
    async with meta(tmp_path / "a.db") as one, meta(tmp_path / "b.db") as other:
        async with registered([one.address, other.address], HELLO, ROUTE):
            await until(lambda: one.routes.current().servers == [ROUTE])
            await until(lambda: other.routes.current().servers == [ROUTE])

        assert one.routes.current().servers == other.routes.current().servers == []
        assert one.routes.current().away == [ROUTE]


async def test_a_meta_server_that_comes_back_learns_of_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "AGAIN_S", 0.02)
    async with meta(tmp_path / "steady.db") as steady:
        async with meta(tmp_path / "a.db") as first:
            address = first.address
            running = registered([steady.address, address], HELLO, ROUTE)
            await running.__aenter__()
            await until(lambda: first.routes.current().servers == [ROUTE])
        async with meta(tmp_path / "a.db", int(address.rpartition(":")[2])) as again:
            await until(lambda: again.routes.current().servers == [ROUTE])
            await running.__aexit__(None, None, None)


async def test_who_cannot_register_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "FIRST_WITHIN_S", 0.2)
    second = Route(broker_group="later", address="127.0.0.1:2", kind="delay")
    async with meta(tmp_path / "a.db") as one, registered([one.address], HELLO, ROUTE):
        with pytest.raises(AlreadyExists, match="give this one another name"):
            async with registered([one.address], HELLO, second):
                pass
    with pytest.raises(Unavailable, match="cannot reach"):
        async with registered([one.address], HELLO, ROUTE):
            pass


class Stuck:
    """A server with a loop of its own that can be kept from turning."""

    def __init__(self, address: str) -> None:
        self.go = threading.Event()
        self.stopped = threading.Event()
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(address)), daemon=True
        )
        self._thread.start()

    async def _serve(self, address: str) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with registered([address], HELLO, ROUTE):
            await self._end.wait()

    def hang(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.stopped.set)
        self._loop.call_soon_threadsafe(self.go.wait, 20)

    async def end(self) -> None:
        assert self._loop is not None and self._end is not None
        self.go.set()
        self._loop.call_soon_threadsafe(self._end.set)
        await asyncio.to_thread(self._thread.join)


async def test_a_server_whose_loop_hangs_falls_silent_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q11: a process that is there and does nothing must not stay master."""
    monkeypatch.setattr(registration, "HANGS_AFTER_S", 0.5)
    monkeypatch.setattr(heartbeat, "AGAIN_S", 0.02)
    async with meta(tmp_path / "a.db", dead_after_ms=1_500) as one:
        server = Stuck(one.address)
        await until(lambda: one.routes.current().servers == [ROUTE])
        server.hang()
        await until(server.stopped.is_set)
        registers = one.heartbeats()
        await until(lambda: one.heartbeats() > registers + 5)  # Busy is not dead.
        assert one.routes.current().servers == [ROUTE]
        await until(lambda: one.routes.current().servers == [])
        server.go.set()
        await until(lambda: one.routes.current().servers == [ROUTE])
        await server.end()
        assert one.routes.current().servers == []


async def test_what_a_server_says_anew_is_known_at_once(tmp_path: Path) -> None:
    member = Member(id="1" * 16, name="one", address="h1:1")
    route = Route(broker_group="main", address=member.address)
    async with meta(tmp_path / "a.db", heartbeat_ms=60_000) as one:
        await one.service.join_group("main", "realtime", member)
        led = await one.service.lead("main", member.id)
        async with registered([one.address], greeting(), route, member=member.id) as said:
            assert [each.role for each in one.routes.current().servers] == ["replica"]
            said.set_epoch(led.epoch)
            await until(lambda: one.routes.current().servers == [route])
            said.set_epoch(0)
            await until(lambda: one.routes.current().servers != [route])
        assert not one.service.liveness.may_be_alive(member.id), "it said goodbye"


async def test_topics_are_known_made_changed_and_deleted_from_afar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_directory, "PAGE", 2)
    async with meta(tmp_path / "a.db") as one:
        for name in ("a", "b", "c"):
            await one.service.create_topic(name, TopicSettings())
        cache = RouteCache([one.address], HELLO)
        deleted: list[Topic] = []
        changed: list[Topic] = []
        async with remote_directory.remote_directory(cache) as directory:
            directory.on_topic_deleted(deleted.append)
            directory.on_topic_changed(changed.append)
            assert sorted(topic.name for topic in directory.topics()) == ["a", "b", "c"]
            made = await directory.create_topic("d", TopicSettings())
            assert directory.topic("d") == made == one.service.topic("d")
            await one.service.delete_topic("a")
            await one.service.change_topic("b", lambda _: TopicSettings(closed=True))
            await until(lambda: deleted and changed)
        await cache.close()

    assert [topic.name for topic in deleted] == ["a"]
    assert changed[0].settings.closed
