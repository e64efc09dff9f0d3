"""The real node, in this process: for tests of applications that send and consume.

Same code as `tern up`, on free loopback ports, with its data in a temporary directory that goes
away. Not a fake: what passes here talks to a real broker over real sockets. In a plain `with` it
runs on the background loop of `ternmq.sync`.
"""

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from ternmq.core.clock import Clock, SystemClock
from ternmq.core.errors import BadConfig
from ternmq.node.all_in_one import serving_node
from ternmq.node.config import build
from ternmq.node.node_secret import own_node_secret
from ternmq.storage.files.disk import Disk

TRIES = 20
START_S = 60.0


class TestingNode:
    """A node that runs while the block does, `with` or `async with`; yields its url."""

    __test__ = False  # pytest: no class of tests.

    def __init__(self, running: AbstractAsyncContextManager[str]) -> None:
        self._running = running
        self._serving: Future[None] | None = None
        self._stop = asyncio.Event()

    async def __aenter__(self) -> str:
        return await self._running.__aenter__()

    async def __aexit__(self, *exc_info: object) -> None:
        await self._running.__aexit__(None, None, None)

    def __enter__(self) -> str:
        from ternmq.sync.loop_thread import loop_thread

        ready: Future[str] = Future()
        work = self._serve(ready)
        self._serving = asyncio.run_coroutine_threadsafe(work, loop_thread().loop)
        return ready.result(START_S)

    def __exit__(self, *exc_info: object) -> None:
        from ternmq.sync.loop_thread import loop_thread

        assert self._serving is not None
        loop_thread().loop.call_soon_threadsafe(self._stop.set)
        self._serving.result(START_S)

    async def _serve(self, ready: Future[str]) -> None:
        """In one task: what a node enters it leaves there, too."""
        try:
            async with self._running as url:
                ready.set_result(url)
                await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise


def node(
    *,
    data_dir: Path | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
    **settings: Any,
) -> TestingNode:
    """A node for `with` or `async with`, which yields its url. Settings: docs/configuration.md."""
    return TestingNode(_running_node(data_dir, clock, disk, settings))


@asynccontextmanager
async def _running_node(
    data_dir: Path | None, clock: Clock | None, disk: Disk | None, settings: dict[str, Any]
) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="tern-testing-") as temporary:
        directory, clock = data_dir or Path(temporary), clock or SystemClock()
        for attempt in range(TRIES):
            own = {"data_dir": directory, "ports": _free_ports(), "console": False}
            config = build(own, settings)
            secret = own_node_secret(config, clock)
            running = serving_node(config, secret=secret, clock=clock, disk=disk)
            try:
                url = await running.__aenter__()
            except BadConfig:
                if attempt + 1 == TRIES:
                    raise
                continue  # Somebody was faster with one of the ports.
            try:
                yield url
            finally:
                await running.__aexit__(None, None, None)
            return


def _free_ports() -> int:
    """A port whose two neighbours are free as well, a moment ago."""
    while True:
        with socket.socket() as first, socket.socket() as second, socket.socket() as third:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
                third.bind(("127.0.0.1", port + 2))
            except (OSError, OverflowError):
                continue
            if port < 65_000:
                return port
