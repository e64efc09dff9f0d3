"""The table of commands of a meta server is what the protocol says (see also `test_server`)."""

import re
from pathlib import Path

from ternmq.core.clock import SystemClock
from ternmq.meta.directory import serving_directory
from ternmq.meta.router import MetaIdentity, MetaRouter
from ternmq.meta.routing.route_table import RouteTable
from ternmq.wire.numbers import Command
from tests.unit.meta.conftest import Opener

PROTOCOL = Path(__file__).parents[3] / "docs" / "wire-protocol.md"
OF_THE_CONNECTION = {Command.HELLO, Command.PING}


async def test_every_command_that_the_protocol_names_is_in_the_table(
    opener: Opener, tmp_path: Path
) -> None:
    rows = re.findall(r"^\| ([A-Z_]+) \| \d+ \| ([^|]*) \|", PROTOCOL.read_text(), re.MULTILINE)
    asked = {Command[name] for name, servers in rows if servers.strip() in ("meta", "all")}
    clock = SystemClock()
    identity = MetaIdentity(
        node="n", version="0", address="a:1", data_dir=tmp_path, started_at_ms=clock.now_ms()
    )

    async with serving_directory(opener, clock=clock) as directory:
        routes = RouteTable(first_version=1)
        router = MetaRouter(directory, routes, identity=identity, clock=clock)
        assert router.commands == asked - OF_THE_CONNECTION
