"""The gateway that `tern up --rocketmq PORT` starts: a child process beside the node.

As the console: started after the node is ready, and its end never ends the node. Its log is
`rocketmq.log` in the data directory. A node with security on starts none: `tern gateway serve` is
told as whom to come in.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec

from ternmq.cli.processes.cluster_plan import HOST, planned_gateway
from ternmq.cli.processes.supervisor import Supervised
from ternmq.cli.terminal.output import note
from ternmq.core.errors import Unavailable
from ternmq.discovery.url import with_tls_files
from ternmq.node.config import NodeConfig

LOG_NAME = "rocketmq.log"
NEEDED = ("google.protobuf",)
STOP_S = 4.0


def missing_parts() -> str:
    """What to install first; empty: everything is there."""
    for name in NEEDED:
        try:
            if find_spec(name) is None:
                break
        except ModuleNotFoundError:
            break
    else:
        return ""
    return "not installed: pip install 'ternmq[rocketmq]'"


def gateway_place(config: NodeConfig) -> str:
    """What people are told about it; empty where none is wanted."""
    if not config.rocketmq_port:
        return ""
    return _why_none(config) or f"{HOST}:{config.rocketmq_port}"


def _why_none(config: NodeConfig) -> str:
    if config.meta.listener.security:
        return "not started, as security is on: tern gateway serve --url tern://USER@HOST:PORT"
    return missing_parts()


@asynccontextmanager
async def gateway_beside(config: NodeConfig, url: str) -> AsyncIterator[None]:
    """Run it while a block runs, if it is wanted and can be run."""
    if not config.rocketmq_port or _why_none(config):
        yield
        return
    if config.tls.tls:
        url = with_tls_files(url, {"ca": config.tls.tls_ca_file})
    planned = planned_gateway(url, config.rocketmq_port)
    child = Supervised(planned, config.data_dir / LOG_NAME, note)
    starting = asyncio.create_task(_start(child), name="rocketmq")
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await child.stop(STOP_S)


async def _start(child: Supervised) -> None:
    try:
        await child.start()
        child.watch(restart=True)
    except Unavailable as error:
        note(f"warning: {error.message}; the node goes on without it")
