"""The meta server over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadName, BadRequest, TooLarge, TopicNotFound
from ternmq.meta import router as router_module
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from ternmq.meta.server import serving_meta
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.server import Listener, ServerLimits
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Empty, Hello
from ternmq.wire.messages.limits import Grant, GrantSet, User, UserFind, UserNamed, UserSet
from ternmq.wire.messages.servers import Route, Routes, RoutesFind
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.messages.topics import (
    Topic,
    TopicCreate,
    TopicFind,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.unit.meta.conftest import Opener

WAIT = 20.0
HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0.1", session=bytes(16))


@dataclass
class Running:
    service: MetaDirectory
    routes: RouteTable
    listener: Listener
    connection: Connection

    async def create(self, name: str) -> Topic:
        wanted = TopicCreate(name=name)
        return await request(self.connection, Command.TOPIC_CREATE, wanted, Topic, timeout=WAIT)

    async def delete(self, name: str) -> Topic:
        named = TopicNamed(name=name)
        return await request(self.connection, Command.TOPIC_DELETE, named, Topic, timeout=WAIT)

    async def names(self, find: TopicFind) -> list[str]:
        found = await request(self.connection, Command.TOPIC_LIST, find, Topics, timeout=WAIT)
        return [topic.name for topic in found.topics]


@asynccontextmanager
async def running(opener: Opener, directory: Path) -> AsyncIterator[Running]:
    clock = SystemClock()
    identity = MetaIdentity(
        node="n1",
        version="0.1",
        address="127.0.0.1:7700",
        data_dir=directory,
        started_at_ms=clock.now_ms(),
    )
    async with serving_directory(opener, clock=clock) as service:
        routes = RouteTable(first_version=1)
        handler = MetaRouter(service, routes, identity=identity, clock=clock)
        async with serving_meta(
            "127.0.0.1", 0, handler, limits=ServerLimits(), clock=clock
        ) as listener:
            address = join_address(*listener.address)
            connection = await Connection.open(address, HELLO, timeout=WAIT)
            try:
                yield Running(service, routes, listener, connection)
            finally:
                await connection.close()


async def test_it_says_what_it_is(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        welcome = meta.connection.welcome

    assert (welcome.role, welcome.node, welcome.version) == ("meta", "n1", "0.1")


async def test_routes_are_those_announced(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        meta.routes.announce(Route(broker_group="a", address="10.0.0.1:7701"))
        answer = await request(meta.connection, Command.ROUTES, Empty(), Routes, timeout=WAIT)

        assert answer == meta.routes.current()


async def test_without_security_nobody_makes_himself_an_admin_for_later(
    opener: Opener, tmp_path: Path
) -> None:
    everything = Grant(action="*", resource="*")
    async with running(opener, tmp_path) as meta:
        for command, wanted in (
            (Command.USER_SET, UserSet(name="eve", create=True)),
            (Command.GRANT_SET, GrantSet(identity="*", grant=everything)),
            (Command.USER_REMOVE, UserNamed(name="admin")),
            (Command.USER_LIST, UserFind()),
        ):
            with pytest.raises(BadRequest, match="security is off"):
                await request(meta.connection, command, wanted, User, timeout=WAIT)
        assert meta.service.topics() == []


async def test_topics_are_made_listed_and_deleted(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        topic = await meta.create("orders")
        assert await meta.create("orders") == topic
        assert meta.service.topic("orders") == topic
        assert await meta.names(TopicFind()) == ["orders"]
        assert await meta.delete("orders") == topic
        assert await meta.names(TopicFind()) == []
        with pytest.raises(TopicNotFound, match="'orders'"):
            await meta.delete("orders")


async def test_an_empty_request_lists_everything(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        await meta.create("orders")
        listed = await request(meta.connection, Command.TOPIC_LIST, Empty(), Topics, timeout=WAIT)

    assert [topic.name for topic in listed.topics] == ["orders"]


async def test_lists_are_sorted_and_can_be_paged_and_narrowed(
    opener: Opener, tmp_path: Path
) -> None:
    async with running(opener, tmp_path) as meta:
        await asyncio.gather(*(meta.create(f"{kind}.{n}") for n in range(3) for kind in "ba"))
        await meta.service.create_topic("%dead%a.1%g", TopicSettings())

        assert await meta.names(TopicFind(limit=2)) == ["a.0", "a.1"]
        assert await meta.names(TopicFind(limit=2, after="a.1")) == ["a.2", "b.0"]
        assert await meta.names(TopicFind(prefix="b.")) == ["b.0", "b.1", "b.2"]
        assert await meta.names(TopicFind(prefix="%")) == ["%dead%a.1%g"]
        assert len(await meta.names(TopicFind())) == 6


async def test_a_list_that_does_not_fit_says_how_to_ask(
    opener: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(opener, tmp_path) as meta:
        await asyncio.gather(*(meta.create(f"t{number}") for number in range(20)))
        monkeypatch.setattr(router_module, "FRAME_SIZE_MAX", 300)
        with pytest.raises(TooLarge, match="limit and after"):
            await meta.names(TopicFind())
        assert len(await meta.names(TopicFind(limit=5))) == 5


@pytest.mark.parametrize("name", ["", "a b", "%mine"])
async def test_names_that_people_may_not_use_are_refused(
    opener: Opener, tmp_path: Path, name: str
) -> None:
    async with running(opener, tmp_path) as meta:
        with pytest.raises(BadName):
            await meta.create(name)
        assert not meta.connection.closed


async def test_our_own_topics_cannot_be_deleted_from_outside(
    opener: Opener, tmp_path: Path
) -> None:
    async with running(opener, tmp_path) as meta:
        await meta.service.create_topic("%dead%a%g", TopicSettings())
        with pytest.raises(TopicNotFound, match="belongs to the broker"):
            await meta.delete("%dead%a%g")


async def test_an_application_with_a_bad_name_is_not_let_in(opener: Opener, tmp_path: Path) -> None:
    bad = Hello(protocol=PROTOCOL_VERSION, app="a b", version="0.1", session=bytes(16))
    async with running(opener, tmp_path) as meta:
        with pytest.raises(BadName, match="application"):
            await Connection.open(meta.connection.address, bad, timeout=WAIT)


async def test_what_brokers_do_is_not_done_here(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        with pytest.raises(BadRequest, match="does not do PUBLISH"):
            await meta.connection.call(Command.PUBLISH, b"")
        assert not meta.connection.closed


async def test_status_tells_about_registry_and_disk(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        status = await request(meta.connection, Command.STATUS, StatusQuery(), Status, timeout=WAIT)

        assert (status.role, status.state, status.node) == ("meta", "ok", "n1")
        assert status.registry == meta.service.description
        assert 0 < status.disk_free <= status.disk_size
        assert status.connections == 1
        assert status.memory > 0


async def test_many_pipelined_creations_hold_and_release_what_they_wait_for(
    opener: Opener, tmp_path: Path
) -> None:
    async with running(opener, tmp_path) as meta:
        calls = [
            meta.connection.call(Command.TOPIC_CREATE, pack(TopicCreate(name=f"t{number}")))
            for number in range(2_000)
        ]
        await asyncio.gather(*calls)

        assert len(meta.service.topics()) == 2_000
        assert meta.listener.held == 0


async def test_one_way_creations_work_and_answer_nothing(opener: Opener, tmp_path: Path) -> None:
    async with running(opener, tmp_path) as meta:
        meta.connection.send(Command.TOPIC_CREATE, pack(TopicCreate(name="orders")))
        meta.connection.send(Command.TOPIC_DELETE, pack(TopicNamed(name="unknown")))
        assert (await meta.create("orders")).name == "orders"
        assert not meta.connection.closed


class Quiet:
    """As much of a peer as a handler needs."""

    hello = HELLO

    def __init__(self) -> None:
        self.answered: asyncio.Queue[Routes] = asyncio.Queue()

    def hold(self, size: int) -> None: ...

    def release(self, size: int) -> None: ...

    def answer(self, command: int, correlation: int, payload: bytes) -> None:
        self.answered.put_nowait(unpack(payload, Routes))


async def test_routes_that_change_right_after_the_question_are_told_at_once(
    opener: Opener, tmp_path: Path
) -> None:
    """Not when the long wait is over: the change came before the task that waits had begun."""
    async with running(opener, tmp_path) as meta:
        identity = MetaIdentity(
            node="n", version="0", address="", data_dir=tmp_path, started_at_ms=0
        )
        clock = SystemClock()
        handler = MetaRouter(meta.service, meta.routes, identity=identity, clock=clock)
        peer = Quiet()
        find = RoutesFind(known=meta.routes.current().version, wait_ms=20_000)
        frame = Frame(command=Command.ROUTES, flags=0, correlation=1, payload=bytearray(pack(find)))
        handler.frame(peer, frame)  # type: ignore[arg-type]
        meta.routes.announce(Route(broker_group="a", address="10.0.0.1:7701"))
        async with asyncio.timeout(5):
            told = await peer.answered.get()
        await handler.finish()

    assert told.servers == meta.routes.current().servers != []
