"""A meta server and several broker groups in this process, over real sockets."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ternmq import connect
from ternmq.core.clock import SystemClock
from ternmq.node.broker_process import serving_broker_alone
from ternmq.node.config import build
from ternmq.node.meta_process import serving_meta_alone
from tests.integration.processes import free_ports
from tests.node_greeting import SECRET


class Several:
    """A cluster that broker groups join and leave."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.url = url
        self._running: dict[str, AsyncExitStack] = {}

    async def add(self, name: str) -> None:
        """Start a broker group, or start it again; returns when clients are sent to it."""
        config = build(
            {"data_dir": self._folder / name, "ports": free_ports(), "broker_group": name}
        )
        stack = AsyncExitStack()
        await stack.enter_async_context(
            serving_broker_alone(config, self.url, secret=SECRET, clock=SystemClock())
        )
        self._running[name] = stack
        async with connect(self.url) as mq:
            while name not in mq.cluster.masters():
                await mq.cluster.refresh()

    async def stop(self, name: str) -> None:
        await self._running.pop(name).aclose()

    async def close(self) -> None:
        for name in list(self._running):
            await self.stop(name)


@asynccontextmanager
async def several(*names: str) -> AsyncIterator[Several]:
    with tempfile.TemporaryDirectory(prefix="tern-several-") as temporary:
        folder = Path(temporary)
        config = build({"data_dir": folder / "meta", "ports": free_ports()})
        async with serving_meta_alone(config, secret=SECRET, clock=SystemClock()) as url:
            cluster = Several(folder, url)
            try:
                for name in names:
                    await cluster.add(name)
                yield cluster
            finally:
                await cluster.close()
