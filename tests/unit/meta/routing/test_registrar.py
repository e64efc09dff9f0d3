"""Servers that register over the network: on the routes while they say so, remembered after."""

from collections.abc import AsyncIterator

import pytest

from ternmq.core.errors import AlreadyExists, BadName, MasterAlive
from ternmq.meta.config import DEAD_AFTER_MS
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.routing.registrar import Registrar
from ternmq.meta.routing.route_table import RouteTable
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.servers import Register, Route, Withdraw
from ternmq.wire.messages.standings import BrokerGroupDrain, Member, MemberJoin, Standing
from tests.unit.meta.conftest import Opener

DELAY = Route(broker_group="later", address="10.0.0.1:7702", kind="delay")
BROKER = Route(broker_group="a", address="10.0.0.2:7701")


@pytest.fixture
def clock() -> TurnedClock:
    return TurnedClock()


@pytest.fixture
async def service(opener: Opener, clock: TurnedClock) -> AsyncIterator[MetaDirectory]:
    async with serving_directory(opener, clock=clock) as made:
        yield made


def pass_time(registrar: Registrar, clock: TurnedClock, seconds: float) -> None:
    """As a meta server that looks every second."""
    for _ in range(int(seconds)):
        clock.turn(1)
        registrar.expire()


async def test_a_server_is_there_while_it_says_so(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    """N: heartbeats; dead after some seconds of silence."""
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    for _ in range(5):
        await registrar.register(Register(route=BROKER))
        pass_time(registrar, clock, DEAD_AFTER_MS / 1000 - 1)
        assert routes.current().servers == [BROKER]
    pass_time(registrar, clock, 2)

    assert routes.current().servers == []
    assert routes.current().away == [], "a broker's messages cannot be asked for by id here"


async def test_a_delay_server_that_is_silent_is_away_and_not_unknown(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    await registrar.register(Register(route=DELAY))
    assert (routes.current().servers, routes.current().away) == ([DELAY], [])
    pass_time(registrar, clock, 60)
    assert (routes.current().servers, routes.current().away) == ([], [DELAY])
    await registrar.register(Register(route=DELAY))
    assert (routes.current().servers, routes.current().away) == ([DELAY], [])
    await registrar.withdraw(Withdraw(route=DELAY))
    assert (routes.current().servers, routes.current().away) == ([], [DELAY])


async def test_delay_servers_are_remembered_over_a_restart_until_forgotten(opener: Opener) -> None:
    async with serving_directory(opener, clock=TurnedClock()) as service:
        registrar = Registrar(service, RouteTable(first_version=1), TurnedClock())
        await registrar.register(Register(route=DELAY))
        await registrar.register(Register(route=BROKER))
    moved = Route(broker_group="later", address="10.0.0.9:7702", kind="delay")
    async with serving_directory(opener, clock=TurnedClock()) as service:
        routes = RouteTable(first_version=1)
        registrar = Registrar(service, routes, TurnedClock())
        assert routes.current().away == [DELAY]
        await registrar.register(Register(route=moved))
        gone = Withdraw(route=Route(broker_group="later", address="", kind="delay"), for_good=True)
        with pytest.raises(AlreadyExists, match="is running; stop it"):
            await registrar.withdraw(gone)
        await registrar.withdraw(Withdraw(route=moved))
        assert routes.current().away == [moved]
        await registrar.withdraw(gone)
        assert routes.current().away == []
    async with serving_directory(opener, clock=TurnedClock()) as service:
        assert service.servers() == []


async def test_two_servers_of_one_name_are_one_too_many(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    await registrar.register(Register(route=DELAY))
    second = Route(broker_group="later", address="10.0.0.5:7702", kind="delay")
    with pytest.raises(AlreadyExists, match=r"running at 10\.0\.0\.1:7702; give this one another"):
        await registrar.register(Register(route=second))
    same_name = Route(broker_group="later", address="10.0.0.5:7701")
    await registrar.register(Register(route=same_name))
    pass_time(registrar, clock, 60)
    await registrar.register(Register(route=second))

    assert routes.current().servers == [second]


async def test_names_are_checked(service: MetaDirectory, clock: TurnedClock) -> None:
    registrar = Registrar(service, RouteTable(first_version=1), clock)
    with pytest.raises(BadName):
        await registrar.register(Register(route=Route(broker_group="a b", address="h:1")))


ONE = Member(id="1" * 16, name="one", address="h1:1")
TWO = Member(id="2" * 16, name="two", address="h2:1")


def said(member: Member, epoch: int = 0) -> Register:
    route = Route(broker_group="main", address=member.address)
    return Register(route=route, member=member.id, epoch=epoch)


def roles(routes: RouteTable) -> dict[str, str]:
    return {route.address: route.role for route in routes.current().servers}


async def grouped(service: MetaDirectory) -> Standing:
    """Two members, both in sync, one leads."""
    await service.join_group("main", "realtime", ONE)
    await service.join_group("main", "realtime", TWO)
    led = await service.lead("main", ONE.id)
    return await service.change_in_sync(
        "main", epoch=led.epoch, in_sync=[ONE.id, TWO.id], version=led.version
    )


async def test_the_route_of_a_group_is_its_master_when_that_is_ready(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    """Q11: no client is sent to a server that is not the master, or not yet."""
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    standing = await grouped(service)
    assert [route.address for route in routes.current().away] == ["h1:1"]
    await registrar.register(said(ONE))
    await registrar.register(said(TWO))
    assert roles(routes) == {"h1:1": "replica", "h2:1": "replica"}
    await registrar.register(said(ONE, standing.epoch - 1))
    assert roles(routes)["h1:1"] == "replica", "the epoch of an earlier life"
    await registrar.register(said(ONE, standing.epoch))
    assert (roles(routes), routes.current().away) == ({"h1:1": "master", "h2:1": "replica"}, [])

    after = await service.lead("main", TWO.id, force=True)
    assert roles(routes) == {"h1:1": "replica", "h2:1": "replica"}, "at once, without a heartbeat"
    await registrar.register(said(TWO, after.epoch))
    await registrar.register(said(ONE, standing.epoch))
    assert roles(routes) == {"h1:1": "replica", "h2:1": "master"}


async def test_a_master_that_is_silent_may_be_replaced_and_one_that_left_at_once(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    standing = await grouped(service)
    await registrar.register(said(ONE, standing.epoch))
    for _ in range(4):
        await registrar.register(said(TWO))
        pass_time(registrar, clock, 3)
        if clock.monotonic() < 10:
            with pytest.raises(MasterAlive):
                await service.lead("main", TWO.id)
    assert roles(routes) == {"h2:1": "replica"}
    led = await service.lead("main", TWO.id)
    await registrar.register(said(TWO, led.epoch))
    await registrar.register(said(ONE))
    both = [ONE.id, TWO.id]
    await service.change_in_sync("main", epoch=led.epoch, in_sync=both, version=led.version)
    route = Route(broker_group="main", address=TWO.address)
    await registrar.withdraw(Withdraw(route=route, member=TWO.id))

    assert (await service.lead("main", ONE.id)).master == ONE.id


async def test_servers_of_this_process_are_there_without_heartbeats(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    standing = await grouped(service)
    route = Route(broker_group="main", address=ONE.address)
    async with registrar.present(route, member=ONE.id) as present:
        present.set_epoch(standing.epoch)
        pass_time(registrar, clock, 60)
        assert roles(routes) == {"h1:1": "master"}
        with pytest.raises(MasterAlive):
            await service.lead("main", TWO.id)
        present.set_epoch(0)
        assert roles(routes) == {"h1:1": "replica"}
    assert roles(routes) == {}
    await service.lead("main", TWO.id)


async def test_the_same_member_twice_is_a_copied_directory(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    registrar = Registrar(service, RouteTable(first_version=1), clock)
    await grouped(service)
    await registrar.register(said(ONE))
    with pytest.raises(AlreadyExists, match=r"running at h1:1.*delete the file 'member'"):
        await registrar.register(said(Member(id=ONE.id, name="copy", address="h9:1")))


async def test_a_group_is_not_joined_while_a_broker_of_an_earlier_release_runs(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    registrar = Registrar(service, RouteTable(first_version=1), clock)
    await registrar.register(Register(route=BROKER))
    for member in (ONE, Member(id="9" * 16, name="it", address=BROKER.address)):
        wanted = MemberJoin(broker_group="a", kind="realtime", member=member)
        if member is ONE:
            with pytest.raises(AlreadyExists, match=r"10\.0\.0\.2:7701 and has joined no"):
                registrar.check_join(wanted)
        else:
            registrar.check_join(wanted)


async def test_a_draining_group_is_told_so_on_its_routes(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    routes = RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    standing = await grouped(service)
    await registrar.register(said(ONE, standing.epoch))
    assert not routes.current().servers[0].draining
    drained = await service.change_standing(BrokerGroupDrain(broker_group="main"))
    assert routes.current().servers[0].draining
    assert await service.change_standing(BrokerGroupDrain(broker_group="main")) == drained, (
        "it is so already"
    )
    await service.change_standing(BrokerGroupDrain(broker_group="main", draining=False))
    assert not routes.current().servers[0].draining


async def test_servers_that_ask_who_comes_and_those_that_do_not_are_told_apart(
    service: MetaDirectory, clock: TurnedClock
) -> None:
    """One that lets everybody in is a door for all of them; an earlier release does not say."""
    registrar = Registrar(service, RouteTable(first_version=1), clock)
    await registrar.register(Register(route=BROKER, guarded=True))
    await registrar.register(Register(route=DELAY))
    here = Route(broker_group="here", address="10.0.0.9:7701")
    async with registrar.present(here):
        assert registrar.guarded_otherwise(True) == [DELAY.address]
        assert registrar.guarded_otherwise(False) == [BROKER.address]
