"""Q10, Q11, Q12: the registry's server is killed, meta servers are killed: running clients and
servers go on, nobody becomes master meanwhile, and everything heals by itself."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import ternmq
from ternmq.core.errors import Conflict, MasterAlive, TernError, Unavailable
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.url import parse_url
from ternmq.node.joining.registration import registered
from ternmq.node.joining.remote_directory import RemoteDirectory, remote_directory
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import Member, Standing
from tests.integration.cluster.test_cluster import url_of
from tests.integration.databases import Server, Servers
from tests.integration.processes import SHARED_SECRET, MetaServer, NodeFactory
from tests.integration.zookeeper import ZooKeeper
from tests.node_greeting import greeting
from tests.waiting import until

HELLO = greeting("west", secret=SHARED_SECRET)
DEAD_AFTER_S = 3.0
FAST = {
    "TERN_SERVER_HEARTBEAT_MS": "300",
    "TERN_SERVER_DEAD_AFTER_MS": str(int(DEAD_AFTER_S * 1000)),
}


@dataclass(slots=True)
class Seat:
    """A member of the broker group 'west', as far as meta sees it."""

    id: str
    directory: RemoteDirectory


@asynccontextmanager
async def seated(url: str, number: int) -> AsyncIterator[Seat]:
    member = Member(id=f"{number:016x}", name=f"w{number}", address=f"127.0.0.1:{number}")
    cache = RouteCache(parse_url(url), HELLO)
    route = Route(broker_group="west", address=member.address)
    async with remote_directory(cache) as directory:
        await directory.join_group("west", "realtime", member)
        async with registered(parse_url(url), HELLO, route, member=member.id):
            yield Seat(member.id, directory)
    await cache.close()


async def lead_with_both(one: Seat, two: Seat) -> Standing:
    led = await one.directory.lead("west", one.id)
    return await one.directory.change_in_sync(
        "west", epoch=led.epoch, in_sync=[one.id, two.id], version=led.version
    )


async def change_until_known(seat: Seat, before: Standing, in_sync: list[str]) -> Standing:
    """As a master does: an outcome is known when a higher version was seen."""

    async def change() -> Standing:
        try:
            return await seat.directory.change_in_sync(
                "west", epoch=before.epoch, in_sync=in_sync, version=before.version
            )
        except Conflict:
            held = seat.directory.standing("west")
            assert held is not None and held.version > before.version
            return held

    return await until(change, "an outcome", seconds=60, every=0.2, ignoring=TernError)


def started(factory: NodeFactory, registry: str) -> MetaServer:
    meta = factory.meta_server(registry, start=False)
    meta.environment = FAST
    meta.start()
    return meta


def registry_server(kind: str, request: pytest.FixtureRequest) -> tuple[str, Server | ZooKeeper]:
    if kind == "zookeeper":
        zookeeper: ZooKeeper = request.getfixturevalue("zookeeper")
        return zookeeper.url(), zookeeper
    servers: Servers = request.getfixturevalue("servers")
    server = servers.get(kind)
    return server.database().address.render_as_string(hide_password=False), server


@pytest.mark.parametrize(
    "kind",
    [
        "postgresql",
        pytest.param("mariadb", marks=pytest.mark.long),
        pytest.param("zookeeper", marks=pytest.mark.long),
    ],
)
async def test_while_the_registry_is_away_everything_goes_on_and_sets_are_frozen(
    kind: str, request: pytest.FixtureRequest, node_factory: NodeFactory
) -> None:
    registry, server = registry_server(kind, request)
    first, second = started(node_factory, registry), started(node_factory, registry)
    url = url_of(first, second)
    node_factory.broker_server(url, "east")
    async with ternmq.connect(url, app="shop") as mq, seated(url, 1) as one, seated(url, 2) as two:
        await mq.send("orders", b"before")
        wide = await lead_with_both(one, two)
        await asyncio.to_thread(server.kill)
        gone = time.monotonic()
        with pytest.raises(Unavailable):
            await one.directory.change_in_sync(
                "west", epoch=wide.epoch, in_sync=[one.id], version=wide.version
            )
        while time.monotonic() < gone + DEAD_AFTER_S + 1:
            await mq.send("orders", b"meanwhile")
        routes = await mq.admin.routes()
        assert {route.broker_group for route in routes} == {"east", "west"}, "heartbeats go on"
        assert [each.in_sync for each in await mq.admin.standings() if each == wide]
        await asyncio.to_thread(server.start)

        shrunk = await change_until_known(one, wide, [one.id])
        assert shrunk.in_sync == [one.id] and shrunk.version > wide.version
        await until(lambda: two.directory.standing("west") == shrunk)
        await mq.admin.create_topic("after")
        await mq.send("after", b"healed")


@pytest.mark.long
async def test_a_meta_server_that_has_just_started_judges_nobody_dead(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """All meta servers are killed, and the master with them: a replica leads when one is back and
    has listened for long enough."""
    registry = f"sqlite:///{tmp_path / 'registry.db'}"
    first, second = started(node_factory, registry), started(node_factory, registry)
    url = url_of(first, second)
    async with seated(url, 1) as one:
        async with seated(url, 2) as two:
            await lead_with_both(one, two)
            led = await two.directory.lead("west", two.id, force=True)
            wide = await two.directory.change_in_sync(
                "west", epoch=led.epoch, in_sync=[one.id, two.id], version=led.version
            )
            first.kill()
            with pytest.raises(MasterAlive):
                await change_master(one)
            second.kill()
            with pytest.raises(TernError):
                await one.directory.lead("west", one.id)
        await asyncio.to_thread(second.start)
        back, refused = time.monotonic(), 0

        async def lead() -> Standing:
            nonlocal refused
            try:
                return await one.directory.lead("west", one.id)
            except MasterAlive:
                refused += 1
                raise

        led = await until(lead, "a new master", seconds=30, every=0.1, ignoring=TernError)

    assert refused > 0 and time.monotonic() - back > DEAD_AFTER_S / 2
    assert (led.master, led.epoch > wide.epoch) == (one.id, True)
    assert sorted(led.in_sync) == [one.id, two.id]  # The other stays until the first has opened.


async def change_master(seat: Seat) -> Standing:
    """By whichever meta server answers."""
    return await until(
        lambda: seat.directory.lead("west", seat.id), seconds=60, ignoring=Unavailable
    )
