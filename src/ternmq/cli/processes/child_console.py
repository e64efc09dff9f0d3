"""The console that `tern up` and `tern cluster` start: a child that nobody waits for nor needs.

It is started after the node is ready, and whatever becomes of it is one line for people: its end
never ends the node. It stops before the node does. Its log is `console.log` in the data directory.
Beside a node with security on it looks as a user of its own (`node/console_user.py`), whose
password it reads from a file that its environment names, and people log in.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ternmq.cli.processes.cluster_plan import HOST, PORT_MAX, ClusterPlan, Planned
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
PORT_BEHIND = 80
"""So far behind the first port of a cluster: 7780 beside 7700."""


def not_installed() -> str:
    """Why no console is started though one is wanted; empty: one is."""
    if any(find_spec(name) is None for name in NEEDED):
        return "not installed: pip install 'ternmq[console]'"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePlace:
    """Where the console beside a cluster of this machine listens."""

    port: int
    shown: str
    """What people are told; empty where none is wanted."""
    runs: bool

    @classmethod
    def beside(cls, plan: ClusterPlan, base: int, *, wanted: bool, secured: bool) -> "ConsolePlace":
        """Behind the ports of its servers; over TLS where they have it."""
        port = base + max(PORT_BEHIND, len(plan.everybody))
        missing = not_installed()
        if missing or not wanted or port > PORT_MAX:
            return cls(port=port, shown=missing if wanted else "", runs=False)
        return cls(port=port, shown=f"http{'s' if secured else ''}://{HOST}:{port}", runs=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleFiles:
    """By which the console of a secured cluster comes in, and what browsers are shown."""

    url: str
    """With its user and certificate."""
    certificate: Path
    key: Path


@asynccontextmanager
async def console_process(
    place: ConsolePlace, url: str, logs: Path, files: ConsoleFiles | None = None
) -> AsyncIterator[None]:
    """Run the console of a cluster while a block runs, if it can be run. `files`: people log in."""
    if not place.runs:
        yield
        return
    arguments = ["console", "--host", HOST, "--port", str(place.port)]
    if files is not None:
        url = files.url
        arguments += ["--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]
    planned = Planned(
        name="console", role="console", port=place.port, arguments=(*arguments, "--url", url)
    )
    async with _running(Supervised(planned, logs / LOG_NAME, note)):
        yield


def console_place(config: NodeConfig) -> str:
    """What people are told about it; empty where none is wanted."""
    if not config.console:
        return ""
    scheme = "https" if config.tls.tls else "http"
    return not_installed() or f"{scheme}://{HOST}:{config.console_port}"


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
    if not_installed():
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
    async with _running(Supervised(planned, config.data_dir / LOG_NAME, note, environment)):
        yield


@asynccontextmanager
async def _running(child: Supervised) -> AsyncIterator[None]:
    """Started beside, and stopped in any case."""
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
        note(f"warning: {error.message}; what it looks at goes on without it")
