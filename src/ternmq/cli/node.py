"""The all-in-one node: which parts there are, and the order in which they start.

Parts start in the order written in `_serve` and stop in the reverse order, so each part may use
every part above it for its whole life. The `ready` line is the only thing that goes to stdout.
"""

import asyncio
import gc
import os
import resource
import shutil
import socket
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path

import structlog
import uvloop

from ternmq import __version__
from ternmq.broker.server import serve
from ternmq.cli.lock import locked
from ternmq.cli.logs import configure
from ternmq.cli.output import note, say
from ternmq.cli.stopping import Stopper
from ternmq.core.clock import Clock, SystemClock
from ternmq.core.config import PORT_BASE, NodeConfig
from ternmq.discovery.url import format_url
from ternmq.meta.registry_sql import SqlRegistry
from ternmq.meta.route_table import RouteTable
from ternmq.meta.server import MetaHandler, MetaIdentity, serving_meta
from ternmq.meta.service import MetaService, serving_directory
from ternmq.rpc.address import join_address
from ternmq.rpc.server import Listener, ServerLimits
from ternmq.wire.commands import Route

# The event loop and the writer thread share the interpreter. Python's turns of 5 ms would add up
# to that much to every group commit.
SWITCH_INTERVAL_S = 0.0005

# Messages live in buffers, not in objects that can form cycles, so the collector has little to
# find and much to look through: rare young collections, and what was made at start is set aside.
GC_THRESHOLDS = (50_000, 20, 50)

ANY_ADDRESS = ("0.0.0.0", "::")
IDLE_SECONDS_MIN = 30.0

log = structlog.get_logger()


def run_node(config: NodeConfig) -> int:
    """Run until asked to stop; return the exit code."""
    config = replace(config, data_dir=config.data_dir.absolute())
    configure(level=config.log_level, as_json=config.log_json)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    try:
        uvloop.run(_until_asked(config))
    except BaseExceptionGroup as failed:
        raise _first_cause(failed) from failed
    return 0


async def _until_asked(config: NodeConfig) -> None:
    """Serve until a signal comes; one that comes while starting ends the start."""
    stopper = Stopper()
    stopper.install()
    ready = asyncio.Event()
    serving = asyncio.create_task(_serve(config, ready, stopper.asked), name="node")
    asked = asyncio.create_task(stopper.asked.wait(), name="stop")
    try:
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():
            serving.cancel()
        await serving
    except asyncio.CancelledError:
        log.info("stopped while starting")
    finally:
        asked.cancel()
        stopper.done()


async def _serve(config: NodeConfig, ready: asyncio.Event, asked: asyncio.Event) -> None:
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(config.data_dir))
        registry = _registry_path(config)
        directory = await stack.enter_async_context(
            serving_directory(lambda: SqlRegistry.open_sqlite(registry), clock=clock)
        )
        routes = RouteTable(first_version=clock.now_ms())
        await stack.enter_async_context(_meta(config, directory, routes, clock))
        await stack.enter_async_context(serve(config, directory=directory, clock=clock))
        route = Route(
            broker_group=config.broker_group,
            address=join_address(_advertised_host(config), config.broker_port),
        )
        routes.announce(route)
        stack.callback(routes.withdraw, route)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        _welcome(config)
        ready.set()
        say(f"ready {_url(config)}")
        sys.stdout.flush()
        await asked.wait()
        log.info("stopping")
    log.info("stopped")


def _meta(
    config: NodeConfig, directory: MetaService, routes: RouteTable, clock: Clock
) -> AbstractAsyncContextManager[Listener]:
    identity = MetaIdentity(
        node=socket.gethostname(),
        version=__version__,
        address=join_address(_advertised_host(config), config.meta_port),
        data_dir=config.data_dir,
        started_at_ms=clock.now_ms(),
        heartbeat_ms=config.heartbeat_ms,
    )
    limits = ServerLimits(
        connections_max=config.connections_max,
        inbound_max=config.inbound_max,
        server_inbound_max=config.inbound_total_max,
        idle_timeout=max(IDLE_SECONDS_MIN, 3 * config.heartbeat_ms / 1000),
    )
    handler = MetaHandler(directory, routes, identity=identity, clock=clock)
    return serving_meta(config.host, config.meta_port, handler, limits=limits, clock=clock)


def _registry_path(config: NodeConfig) -> Path:
    folder = config.data_dir / "meta"
    folder.mkdir(exist_ok=True)
    return folder / "registry.db"


def _advertised_host(config: NodeConfig) -> str:
    """The address that clients are told; a machine that listens everywhere is known by its name."""
    if config.advertised_host:
        return config.advertised_host
    return socket.gethostname() if config.host in ANY_ADDRESS else config.host


def _welcome(config: NodeConfig) -> None:
    """Tell people what runs, where the data is, and what to try."""
    command = "tern" if shutil.which("tern") else _own_command()
    url = "" if config.ports == PORT_BASE else f" --url {_url(config)}"
    note(
        f"TernMQ {__version__} is running (pid {os.getpid()}); Ctrl-C stops it\n"
        f"  meta    {config.host}:{config.meta_port}\n"
        f"  broker  {config.host}:{config.broker_port}\n"
        f"  data    {config.data_dir} (flush {config.flush})\n"
        f"  try     {command} send hello 'my first message'{url}\n"
        f"          {command} consume hello --group me{url}"
    )


def _own_command() -> str:
    """How this program was called, for somebody in the same folder."""
    called = Path(sys.argv[0])
    return "python -m ternmq.cli.main" if called.suffix == ".py" else os.path.relpath(called)


def _url(config: NodeConfig) -> str:
    host = "127.0.0.1" if config.host in ANY_ADDRESS else config.host
    return format_url([join_address(host, config.meta_port)])


def _allow_many_files() -> None:
    """Every connection is a file; ask for as many as this user may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _first_cause(failed: BaseException) -> BaseException:
    """A part that failed on purpose is reported as such; anything else stays whole: a bug."""
    while isinstance(failed, BaseExceptionGroup) and len(failed.exceptions) == 1:
        failed = failed.exceptions[0]
    return failed
