"""Who is connected to a meta server, shown as nodes in its registry (D1): `registry_clients`.

ZooKeeper has them as ephemeral nodes, beside those of servers; they are for people who look there,
nobody decides anything by them. Each client is a write, and the registry has more important ones:
so this is off unless it is asked for, looks every `SHOW_S`, and makes `NEW_MAX` nodes at a time.
Clients keep a connection to one meta server for as long as they live. Other servers are not here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import islice

from ternmq.core.errors import TernError
from ternmq.wire.messages.hello import Hello

SHOW_S = 3.0
NEW_MAX = 100
CLIENTS_MAX = 10_000
TEXT_MAX = 255

Show = Callable[[Mapping[str, bytes]], Awaitable[None]]


class ConnectedClients:
    """The clients of one meta server, by connection."""

    def __init__(self, show: Show, *, every_s: float = SHOW_S) -> None:
        self._show = show
        self._every_s = every_s
        self._there: dict[int, tuple[str, bytes]] = {}
        self._shown: dict[str, bytes] = {}

    def came(self, connection: int, hello: Hello) -> None:
        fields = {
            "app": hello.app,
            "host": hello.host[:TEXT_MAX],
            "pid": hello.pid,
            "version": hello.version[:TEXT_MAX],
        }
        name = f"{hello.app}:{hello.session[:16].hex()}"
        self._there[connection] = (name, json.dumps(fields).encode())

    def left(self, connection: int) -> None:
        self._there.pop(connection, None)

    def next_shown(self) -> dict[str, bytes]:
        """The clients that are shown next: who left is gone, and some of the others come."""
        there = dict(islice(self._there.values(), CLIENTS_MAX))
        shown = {name: fields for name, fields in there.items() if name in self._shown}
        new = ((name, fields) for name, fields in there.items() if name not in shown)
        return shown | dict(islice(new, NEW_MAX))

    async def run(self) -> None:
        """Show them, again and again. A registry that is away gets them when it is back; one whose
        session ended, anew."""
        while True:
            wanted = self.next_shown()
            with suppress(TernError):
                await self._show(wanted)
                self._shown = wanted
            await asyncio.sleep(self._every_s)
