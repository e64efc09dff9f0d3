"""The console that `tern up` starts: a child process that the node neither waits for nor needs.

It is started after the node is ready, and whatever becomes of it is one line for people: its end
never ends the node. It stops before the node does. Its log is `console.log` in the data directory.
Beside a node with security on it looks as a user of its own (`node/console_user.py`), whose
password it reads from a file that its environment names, and people log in.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from ternmq.cli.processes.cluster_plan import HOST, Planned
from ternmq.cli.processes.console import OIDC_CLIENT_ID, OIDC_ISSUER, OIDC_USER_CLAIM
from ternmq.cli.processes.supervisor import Supervised
from ternmq.cli.terminal.output import note
from ternmq.core.errors import Unavailable
from ternmq.discovery.url import with_tls_files
from ternmq.node.config import NodeConfig
from ternmq.node.console_user import CONSOLE_USER, PASSWORD_FILE

LOG_NAME = "console.log"
NEEDED = ("fastapi", "uvicorn", "jinja2", "multipart")
STOP_S = 4.0


def why_none(config: NodeConfig) -> str:
    """Why no console is started though one is wanted; empty: one is."""
    if any(find_spec(name) is None for name in NEEDED):
        return "not installed: pip install 'ternmq[console]'"
    return ""


def console_place(config: NodeConfig) -> str:
    """What people are told about it; empty where none is wanted."""
    if not config.console:
        return ""
    scheme = "https" if config.tls.tls else "http"
    return why_none(config) or f"{scheme}://{HOST}:{config.console_port}"


def login_environment(config: NodeConfig, password_file: Path) -> dict[str, str]:
    """What a console is told besides: where its password is, and by which issuer people come."""
    named = {"TERN_PASSWORD_FILE": str(password_file)}
    oidc = config.meta.listener.oidc
    if oidc.oidc_issuer:
        named |= {
            OIDC_ISSUER: oidc.oidc_issuer,
            OIDC_CLIENT_ID: os.environ.get(OIDC_CLIENT_ID, oidc.oidc_audience),
            OIDC_USER_CLAIM: oidc.oidc_user_claim,
        }
    return named


@asynccontextmanager
async def console_beside(config: NodeConfig, url: str) -> AsyncIterator[None]:
    """Run it while a block runs, if it can be run."""
    if why_none(config):
        yield
        return
    arguments = ["console", "--host", HOST, "--port", str(config.console_port)]
    if config.tls.tls:
        url = with_tls_files(url, {"ca": config.tls.tls_ca_file})
        arguments += ["--tls-certificate", config.tls.tls_certificate_file]
        arguments += ["--tls-key", config.tls.tls_key_file]
    environment: dict[str, str] = {}
    if config.meta.listener.security:
        url = url.replace("://", f"://{CONSOLE_USER}@", 1)
        environment = login_environment(config, config.data_dir / PASSWORD_FILE)
    planned = Planned(
        name="console",
        role="console",
        port=config.console_port,
        arguments=(*arguments, "--url", url),
    )
    child = Supervised(planned, config.data_dir / LOG_NAME, note, environment)
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
