"""The route cache against real sockets: refreshing, failing over, staying usable."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ternmq.core.clock import SystemClock
from ternmq.core.errors import Closed, OverLimit, Unavailable
from ternmq.discovery.routes import RouteCache
from ternmq.rpc.address import join_address
from ternmq.rpc.server import Listener, Peer, ServerLimits, listening
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome
from ternmq.wire.messages.servers import Route, Routes, RoutesFind
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.waiting import until

HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0.1", session=bytes(16))
MASTER = Route(broker_group="a", address="10.0.0.1:7701")
REPLICA = Route(broker_group="a", address="10.0.0.2:7701", role="replica")
DELAY = Route(broker_group="d", address="10.0.0.3:7702", kind="delay")


class Meta:
    """Answers ROUTES with what it is told, and counts."""

    def __init__(self, *servers: Route) -> None:
        self.routes = Routes(version=1, servers=list(servers))
        self.asked = 0
        self.waiting: list[tuple[Peer, Frame]] = []
        self.peers: list[Peer] = []
        self.refuse = False

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        if self.refuse:
            raise OverLimit("full")
        self.peers.append(peer)
        return Welcome(protocol=PROTOCOL_VERSION, version="0.1", role="meta", node="m")

    def frame(self, peer: Peer, frame: Frame) -> None:
        find = unpack(frame.payload, RoutesFind)
        if find.wait_ms and find.known == self.routes.version:
            self.waiting.append((peer, frame))
            return
        self.asked += 1
        peer.answer(frame.command, frame.correlation, pack(self.routes))

    def change(self, *servers: Route) -> None:
        """Others are there now; those who wait are told."""
        self.routes = Routes(version=self.routes.version + 1, servers=list(servers))
        for peer, frame in self.waiting:
            peer.answer(frame.command, frame.correlation, pack(self.routes))
        self.waiting = []

    def lost(self, peer: Peer) -> None:
        self.peers.remove(peer)


@asynccontextmanager
async def serving(meta: Meta) -> AsyncIterator[Listener]:
    async with listening(
        "127.0.0.1", 0, meta, limits=ServerLimits(), clock=SystemClock()
    ) as listener:
        yield listener


def address_of(listener: Listener) -> str:
    return join_address(*listener.address)


def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return join_address(*server.getsockname())


async def test_a_refresh_learns_who_takes_messages() -> None:
    async with serving(Meta(MASTER, REPLICA, DELAY)) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        assert cache.routes is None
        assert cache.masters() == []
        routes = await cache.refresh()
        await cache.close()

    assert cache.routes == routes
    assert cache.masters() == [MASTER]
    assert cache.masters("delay") == [DELAY]


async def test_refreshes_that_overlap_ask_once() -> None:
    meta = Meta(MASTER)
    async with serving(meta) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        await asyncio.gather(*(cache.refresh() for _ in range(50)))
        await cache.refresh()
        await cache.close()

    assert meta.asked == 2


async def test_the_next_meta_server_is_asked_when_one_is_away() -> None:
    refusing, meta = Meta(), Meta(MASTER)
    refusing.refuse = True
    async with serving(refusing) as full, serving(meta) as listener:
        cache = RouteCache([nobody(), address_of(full), address_of(listener)], HELLO)
        await cache.refresh()
        assert cache.masters() == [MASTER]
        await cache.close()


async def test_a_connection_that_died_unnoticed_is_replaced() -> None:
    meta = Meta(MASTER)
    async with serving(meta) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        await cache.refresh()
        first = await cache.connection()
        meta.peers[0].abort()
        meta.routes = Routes(version=2, servers=[MASTER, DELAY])
        routes = await cache.refresh()
        second = await cache.connection()
        await cache.close()

    assert routes.version == 2
    assert first is not second


async def test_what_was_learnt_stays_while_meta_is_away() -> None:
    async with serving(Meta(MASTER)) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        await cache.refresh()
    with pytest.raises(Unavailable, match="cannot reach"):
        await cache.refresh()

    assert cache.masters() == [MASTER]
    await cache.close()


async def test_when_nobody_answers_everybody_is_named() -> None:
    addresses = [nobody(), nobody()]
    cache = RouteCache(addresses, HELLO)

    with pytest.raises(Unavailable, match="no meta server answers") as caught:
        await cache.refresh()

    assert all(address in caught.value.message for address in addresses)
    await cache.close()


async def test_a_closed_cache_opens_nothing() -> None:
    cache = RouteCache([nobody()], HELLO)
    await cache.close()

    with pytest.raises(Closed):
        await cache.connection()


async def test_closing_ends_a_refresh_under_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cache = RouteCache([join_address(*silent.getsockname())], HELLO)
        refreshing = asyncio.ensure_future(cache.refresh())
        await asyncio.sleep(0)
        await cache.close()
        with pytest.raises(asyncio.CancelledError):
            await refreshing


async def test_an_abandoned_cache_leaves_its_connection_alone() -> None:
    meta = Meta(MASTER)
    async with serving(meta) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        connection = await cache.connection()
        child = RouteCache([address_of(listener)], HELLO)
        child.abandon()
        with pytest.raises(Closed):
            await child.refresh()
        assert not connection.closed
        await cache.close()


async def test_other_routes_are_known_without_asking() -> None:
    """Q11: a question waits at meta all the time."""
    meta = Meta(MASTER)
    async with serving(meta) as listener:
        cache = RouteCache([address_of(listener)], HELLO)
        told: list[int] = []
        await cache.refresh()
        cache.changed.append(lambda: told.append(len(cache.masters())))
        await until(lambda: bool(meta.waiting))
        meta.change(MASTER, Route(broker_group="b", address="10.0.0.9:7701"))
        await until(lambda: told == [2])
        await until(lambda: bool(meta.waiting))
        await cache.close()

    assert meta.asked == 1


async def test_moving_on_to_another_meta_server_does_not_end_the_watch() -> None:
    """Q10: one without its registry is left; the question for news goes along."""
    one, other = Meta(MASTER), Meta(MASTER)
    async with serving(one) as first, serving(other) as second:
        cache = RouteCache([address_of(first), address_of(second)], HELLO)
        await cache.refresh()
        await until(lambda: bool(one.waiting))
        connection = await cache.connection()
        assert cache.move_on(connection)
        with pytest.raises(Unavailable, match="asking another"):
            await connection.call(Command.ROUTES, pack(RoutesFind()))
        assert (await cache.connection()).address == address_of(second)
        await until(lambda: bool(other.waiting))
        other.change(MASTER, DELAY)
        await until(lambda: cache.masters("delay") == [DELAY])
        await cache.close()
