"""A TCP proxy between clients and the broker that cuts connections, at once or after some bytes.

The node is told to advertise 127.0.0.2 (`PROXIED`), where the proxy listens on the broker's port;
so clients learn the proxy's address from the meta server as they would any broker's.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.integration.processes import Node

PROXIED = {"TERN_ADVERTISED_HOST": "127.0.0.2"}
_CHUNK = 4096


class Proxy:
    """Passes bytes on. `cut` drops every connection; `cut_after` (a range of byte counts) gives
    each new connection a random number of bytes to live, both directions counted together."""

    def __init__(self, port: int, rng: random.Random | None = None) -> None:
        self._port = port
        self._rng = rng or random.Random(0)
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self.cut_after: tuple[int, int] | None = None
        self.refusing = False
        self.opened = 0
        self.cuts = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self.opened += 1
        left = [self._rng.randint(*self.cut_after)] if self.cut_after else [2**62]
        pair = (writer, far_writer)
        self._pairs.add(pair)
        passing = [
            asyncio.create_task(self._pass(reader, far_writer, left)),
            asyncio.create_task(self._pass(far_reader, writer, left)),
        ]
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        self._drop(pair)
        for task in passing:
            task.cancel()
        await asyncio.wait(passing)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: list[int]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if len(data) >= left[0]:
                    writer.write(data[: left[0]])  # In the middle of a frame, most likely.
                    await writer.drain()
                    self.cuts += 1
                    return
                left[0] -= len(data)
                writer.write(data)
                await writer.drain()

    def _drop(self, pair: tuple[asyncio.StreamWriter, asyncio.StreamWriter]) -> None:
        self._pairs.discard(pair)
        for writer in pair:
            writer.close()

    def cut(self) -> None:
        """Drop every connection now."""
        for pair in list(self._pairs):
            self.cuts += 1
            for writer in pair:
                writer.transport.abort()


@asynccontextmanager
async def proxied(node: Node, *, seed: int = 0) -> AsyncIterator[Proxy]:
    """A proxy in front of the broker of a node that was started with `PROXIED`."""
    proxy = Proxy(node.port + 1, random.Random(seed))
    server = await asyncio.start_server(proxy.accept, "127.0.0.2", node.port + 1)
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
