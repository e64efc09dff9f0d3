"""The last connections of a server are not for everybody (S3: nodes and admins have a reserve)."""

from pathlib import Path

import pytest

from ternmq.core.errors import OverLimit
from ternmq.rpc.connection import Connection
from tests.node_greeting import greeting
from tests.unit.rpc.guarded.guarded_server import WAIT, guarded_server, user

PLACES = 200
"""Of which two are kept back."""


async def test_a_crowd_does_not_keep_servers_of_the_cluster_and_admins_out(tmp_path: Path) -> None:
    async with guarded_server(tmp_path, connections_max=PLACES) as server:
        server.book.put("shop", user())
        server.book.put("admin", user("allow * *"))
        crowd = [await server.connect("shop") for _ in range(PLACES - 2)]
        for _ in range(3):
            with pytest.raises(OverLimit, match="for servers and admins"):
                await server.connect("shop")
        admin = await server.connect("admin")
        node = await Connection.open(server.address, greeting(), timeout=WAIT)
        with pytest.raises(OverLimit, match=f"has its {PLACES} connections"):
            await server.connect("admin")
        for connection in (*crowd, admin, node):
            await connection.close()
