"""What a meta server tells Prometheus about broker groups."""

from pathlib import Path

from ternmq.meta.directory import serving_directory
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.meta.routing.registrar import Registrar
from ternmq.meta.routing.route_table import RouteTable
from ternmq.metrics.samples import Samples
from ternmq.node.meta_prometheus import registry_figures
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.servers import Register, Route
from ternmq.wire.messages.standings import Member


async def test_members_and_silence_of_a_group_with_a_replica(tmp_path: Path) -> None:
    clock, routes = TurnedClock(), RouteTable(first_version=1)
    one = Member(id="1" * 16, name="one", address="h1:1")
    two = Member(id="2" * 16, name="two", address="h2:1")
    async with serving_directory(
        lambda: SqlRegistry.open_sqlite(tmp_path / "registry.db"), clock=clock
    ) as service:
        registrar = Registrar(service, routes, clock)
        for member in (one, two):
            await service.join_group("main", "realtime", member)
            route = Route(broker_group="main", address=member.address)
            await registrar.register(Register(route=route, member=member.id))
            clock.turn(2)
        led = await service.lead("main", one.id)
        out = Samples()
        registry_figures(out, service, routes, registrar)

    values = out.values
    assert values["tern_meta_members"] == {
        ("broker", "main", "all"): 2,
        ("broker", "main", "in_sync"): 1,
    }
    assert values["tern_meta_epoch"] == {("broker", "main"): led.epoch}
    assert values["tern_meta_heartbeat_age_seconds"] == {("broker", "main"): 4}
    assert values["tern_meta_servers"]["broker", "away"] == 1, "nobody says that it is ready"
