"""`tern up` and `tern delay serve` as processes: lock, signals, settings, what people are told.

The node itself is in `ternmq.node`. The `ready` line is the only thing that goes to stdout.
"""

import asyncio
import gc
import os
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import uvloop

from ternmq import __version__
from ternmq.cli.processes.lock import locked
from ternmq.cli.processes.stopping import Stopper
from ternmq.cli.terminal.logs import configure
from ternmq.cli.terminal.output import note, say
from ternmq.core.clock import SystemClock
from ternmq.core.config import PORT_BASE, NodeConfig
from ternmq.core.log import get_logger
from ternmq.node.addresses import node_url
from ternmq.node.all_in_one import serving_node

# The event loop and the writer thread share the interpreter. Python's turns of 5 ms would add up
# to that much to every group commit.
SWITCH_INTERVAL_S = 0.0005

# Messages live in buffers, not in objects that can form cycles, so the collector has little to
# find and much to look through: rare young collections, and what was made at start is set aside.
GC_THRESHOLDS = (50_000, 20, 50)

Serving = Callable[[NodeConfig], AbstractAsyncContextManager[str]]
"""Runs servers while a block runs; yields what the ready line says about them."""

log = get_logger()


def run_node(config: NodeConfig) -> int:
    """Run the all-in-one node until asked to stop; return the exit code."""

    @asynccontextmanager
    async def serving(config: NodeConfig) -> AsyncIterator[str]:
        async with serving_node(config, clock=SystemClock()) as url:
            _welcome(config)
            yield url

    return _run(config, serving)


def run_delay(config: NodeConfig, url: str) -> int:
    """Run one delay server until asked to stop; return the exit code."""

    @asynccontextmanager
    async def serving(config: NodeConfig) -> AsyncIterator[str]:
        from ternmq.node.delay_process import serving_delay_alone

        async with serving_delay_alone(config, url, clock=SystemClock()) as address:
            note(
                f"TernMQ {__version__} delay server {config.broker_group} is running "
                f"(pid {os.getpid()}); Ctrl-C stops it\n"
                f"  delay   {config.host}:{config.delay_port}\n"
                f"{_metrics(config)}"
                f"  meta    {url}\n"
                f"  data    {config.data_dir}"
            )
            yield f"{config.broker_group} {address}"

    return _run(config, serving)


def run_broker(config: NodeConfig, url: str) -> int:
    """Run one broker until asked to stop; return the exit code."""

    @asynccontextmanager
    async def serving(config: NodeConfig) -> AsyncIterator[str]:
        from ternmq.node.broker_process import serving_broker_alone

        async with serving_broker_alone(config, url, clock=SystemClock()) as address:
            note(
                f"TernMQ {__version__} broker {config.broker_group} is running "
                f"(pid {os.getpid()}); Ctrl-C stops it\n"
                f"  broker  {config.host}:{config.broker_port}\n"
                f"{_metrics(config)}"
                f"  meta    {url}\n"
                f"  data    {config.data_dir} (flush {config.flush})"
            )
            yield f"{config.broker_group} {address}"

    return _run(config, serving)


def run_meta(config: NodeConfig) -> int:
    """Run one meta server until asked to stop; return the exit code."""

    @asynccontextmanager
    async def serving(config: NodeConfig) -> AsyncIterator[str]:
        from ternmq.node.meta_process import serving_meta_alone

        async with serving_meta_alone(config, clock=SystemClock()) as url:
            note(
                f"TernMQ {__version__} meta server is running "
                f"(pid {os.getpid()}); Ctrl-C stops it\n"
                f"  meta    {config.host}:{config.meta_port}\n"
                f"{_metrics(config)}"
                f"  data    {config.data_dir}"
            )
            yield url

    return _run(config, serving)


def _run(config: NodeConfig, serving: Serving) -> int:
    config = replace(config, data_dir=config.data_dir.absolute())
    configure(level=config.log_level, as_json=config.log_json)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    try:
        uvloop.run(_until_asked(config, serving))
    except BaseExceptionGroup as failed:
        raise _first_cause(failed) from failed
    return 0


async def _until_asked(config: NodeConfig, node: Serving) -> None:
    """Serve until a signal comes; one that comes while starting ends the start."""
    stopper = Stopper()
    stopper.install()
    ready = asyncio.Event()
    serving = asyncio.create_task(_serve(config, node, ready, stopper.asked), name="node")
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


async def _serve(
    config: NodeConfig, node: Serving, ready: asyncio.Event, asked: asyncio.Event
) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(config.data_dir))
        where = await stack.enter_async_context(node(config))
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        ready.set()
        say(f"ready {where}")
        sys.stdout.flush()
        await asked.wait()
        log.info("stopping")
    log.info("stopped")


def _welcome(config: NodeConfig) -> None:
    """Tell people what runs, where the data is, and what to try."""
    command = "tern" if shutil.which("tern") else _own_command()
    url = "" if config.ports == PORT_BASE else f" --url {node_url(config)}"
    delay = f"  delay   {config.host}:{config.delay_port}\n" if config.delay_server else ""
    note(
        f"TernMQ {__version__} is running (pid {os.getpid()}); Ctrl-C stops it\n"
        f"  meta    {config.host}:{config.meta_port}\n"
        f"  broker  {config.host}:{config.broker_port}\n"
        f"{delay}"
        f"{_metrics(config)}"
        f"  data    {config.data_dir} (flush {config.flush})\n"
        f"  try     {command} send hello 'my first message'{url}\n"
        f"          {command} consume hello --group me{url}"
    )


def _metrics(config: NodeConfig) -> str:
    where = f"http://{config.host}:{config.metrics_port}/metrics"
    return f"  metrics {where}\n" if config.metrics_port else ""


def _own_command() -> str:
    """How this program was called, for somebody in the same folder."""
    called = Path(sys.argv[0])
    return "python -m ternmq.cli.main" if called.suffix == ".py" else os.path.relpath(called)


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
