"""The table of commands of a meta server is what the protocol says (see also `test_server`)."""

from pathlib import Path

from ternmq.core.clock import SystemClock
from ternmq.meta.directory import serving_directory
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from tests.unit.meta.conftest import Opener
from tests.wire_page import commands_of


async def test_every_command_that_the_protocol_names_is_in_the_table(
    opener: Opener, tmp_path: Path
) -> None:
    clock = SystemClock()
    identity = MetaIdentity(
        node="n", version="0", address="a:1", data_dir=tmp_path, started_at_ms=clock.now_ms()
    )

    async with serving_directory(opener, clock=clock) as directory:
        routes = RouteTable(first_version=1)
        router = MetaRouter(directory, routes, identity=identity, clock=clock)
        assert router.commands == commands_of("meta")
