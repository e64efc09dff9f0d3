"""The console that `tern up` starts: a child process that the node neither waits for nor needs.

It is started after the node is ready, and whatever becomes of it is one line for people: its end
never ends the node. It stops before the node does. Its log is `console.log` in the data directory.
A node with security on starts none: the console would have to look as somebody.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from ternmq.cli.processes.cluster_plan import HOST, Planned
from ternmq.cli.processes.supervisor import Supervised
from ternmq.cli.terminal.output import note
from ternmq.core.errors import Unavailable
from ternmq.discovery.url import with_tls_files
from ternmq.node.config import NodeConfig

LOG_NAME = "console.log"
NEEDED = ("fastapi", "uvicorn", "jinja2", "multipart")
STOP_S = 4.0


def why_none(config: NodeConfig) -> str:
    """Why no console is started though one is wanted; empty: one is."""
    if any(find_spec(name) is None for name in NEEDED):
        return "not installed: pip install 'ternmq[console]'"
    if config.meta.listener.security:
        return "not started, as security is on: tern console --url tern://USER@HOST:PORT"
    return ""


def console_place(config: NodeConfig) -> str:
    """What people are told about it; empty where none is wanted."""
    if not config.console:
        return ""
    return why_none(config) or f"http://{HOST}:{config.console_port}"


@asynccontextmanager
async def console_beside(config: NodeConfig, url: str) -> AsyncIterator[None]:
    """Run it while a block runs, if it can be run."""
    if why_none(config):
        yield
        return
    if config.tls.tls:
        url = with_tls_files(url, {"ca": config.tls.tls_ca_file})
    arguments = ("console", "--url", url, "--host", HOST, "--port", str(config.console_port))
    planned = Planned(name="console", role="console", port=config.console_port, arguments=arguments)
    child = Supervised(planned, config.data_dir / LOG_NAME, note)
    starting = asyncio.create_task(_start(child), name="console")
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await child.stop(STOP_S)


async def _start(child: Supervised) -> None:
    try:
        await child.start()
        child.watch(restart=False)
    except Unavailable as error:
        note(f"warning: {error.message}; the node goes on without it")
