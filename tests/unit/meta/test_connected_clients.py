"""Who is connected to a meta server, as its registry shows it (D1)."""

import asyncio
from collections.abc import Mapping

from ternmq.core.errors import Unavailable
from ternmq.meta.connected_clients import NEW_MAX, ConnectedClients
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello
from tests.waiting import until


def hello(number: int) -> Hello:
    session = number.to_bytes(16, "big")
    return Hello(protocol=PROTOCOL_VERSION, app="shop", version="1", session=session, host="h")


async def test_clients_that_come_and_go_are_shown_some_at_a_time() -> None:
    """D1: a crowd that connects at once does not keep the registry busy."""
    shown: list[dict[str, bytes]] = []
    away = [Unavailable("not now")]

    async def show(clients: Mapping[str, bytes]) -> None:
        if away:
            raise away.pop()
        shown.append(dict(clients))

    clients = ConnectedClients(show, every_s=0.001)
    for number in range(NEW_MAX + 1):
        clients.came(number, hello(number))
    running = asyncio.create_task(clients.run())
    await until(lambda: len(shown) >= 2)
    assert [len(each) for each in shown[:2]] == [NEW_MAX, NEW_MAX + 1]
    name, said = next(iter(shown[0].items()))
    assert name == f"shop:{0:032x}"
    assert said == b'{"app": "shop", "host": "h", "pid": 0, "version": "1"}'

    clients.left(0)
    await until(lambda: len(shown[-1]) == NEW_MAX)
    assert name not in shown[-1]
    running.cancel()
    await asyncio.wait([running])
