"""Servers that register over the network: on the routes while they say so, remembered after."""

from collections.abc import AsyncIterator

import pytest

from ternmq.core.errors import AlreadyExists, BadName
from ternmq.meta.registrar import DEAD_AFTER_MS, Registrar
from ternmq.meta.route_table import RouteTable
from ternmq.meta.service import MetaService, serving_directory
from ternmq.testing.clock import TurnedClock
from ternmq.wire.commands import Route
from ternmq.wire.registering import Register, Withdraw

from .conftest import Opener

DELAY = Route(broker_group="later", address="10.0.0.1:7702", kind="delay")
BROKER = Route(broker_group="a", address="10.0.0.2:7701")


@pytest.fixture
async def service(opener: Opener) -> AsyncIterator[MetaService]:
    async with serving_directory(opener, clock=TurnedClock()) as made:
        yield made


async def test_a_server_is_there_while_it_says_so(service: MetaService) -> None:
    """N: heartbeats; dead after 10 s."""
    clock, routes = TurnedClock(), RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    for _ in range(5):
        await registrar.register(Register(route=BROKER))
        clock.turn(DEAD_AFTER_MS / 1000 - 1)
        registrar.expire()
        assert routes.current().servers == [BROKER]
    clock.turn(2)
    registrar.expire()

    assert routes.current().servers == []
    assert routes.current().away == [], "a broker's messages cannot be asked for by id here"


async def test_a_delay_server_that_is_silent_is_away_and_not_unknown(service: MetaService) -> None:
    clock, routes = TurnedClock(), RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    await registrar.register(Register(route=DELAY))
    assert (routes.current().servers, routes.current().away) == ([DELAY], [])
    clock.turn(60)
    registrar.expire()
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


async def test_two_servers_of_one_name_are_one_too_many(service: MetaService) -> None:
    clock, routes = TurnedClock(), RouteTable(first_version=1)
    registrar = Registrar(service, routes, clock)
    await registrar.register(Register(route=DELAY))
    second = Route(broker_group="later", address="10.0.0.5:7702", kind="delay")
    with pytest.raises(AlreadyExists, match=r"running at 10\.0\.0\.1:7702; give this one another"):
        await registrar.register(Register(route=second))
    same_name = Route(broker_group="later", address="10.0.0.5:7701")
    await registrar.register(Register(route=same_name))
    clock.turn(60)
    registrar.expire()
    await registrar.register(Register(route=second))

    assert routes.current().servers == [second]


async def test_names_are_checked(service: MetaService) -> None:
    registrar = Registrar(service, RouteTable(first_version=1), TurnedClock())
    with pytest.raises(BadName):
        await registrar.register(Register(route=Route(broker_group="a b", address="h:1")))
