"""`tern up` and the `serve` commands as processes: lock, signals, settings, the welcome text.

The node itself is in `ternmq.node`. The `ready` line is the only thing that goes to stdout.
"""

import asyncio
import os
import resource
import shutil
import stat
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ternmq import __version__
from ternmq.cli.processes.child_console import console_beside, console_place
from ternmq.cli.processes.child_gateway import gateway_beside, gateway_place
from ternmq.cli.processes.collector import quiet_collector
from ternmq.cli.processes.lock import locked
from ternmq.cli.processes.shutdown import Stopper
from ternmq.cli.terminal.logs import configure
from ternmq.cli.terminal.output import note, say
from ternmq.core.clock import SystemClock
from ternmq.core.lifecycle import report_bugs
from ternmq.core.log import get_logger
from ternmq.core.process import run_loop
from ternmq.discovery.url import with_tls_files
from ternmq.node.addresses import node_url
from ternmq.node.all_in_one import serving_node
from ternmq.node.config import PORT_BASE, NodeConfig
from ternmq.node.node_secret import own_node_secret, shared_node_secret

# The event loop and the writer thread share the interpreter. Python's turns of 5 ms would add up
# to that much to every group commit.
SWITCH_INTERVAL_S = 0.0005

CLOCK = SystemClock()
PRIVATE = 0o077
"""What others may not do with the files of a server: anything."""

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """What one process runs, and what people are told of it."""

    title: str
    """Which server; empty: the all-in-one node."""
    ports: dict[str, int]
    """Where it listens, by role."""
    serving: Callable[[NodeConfig], AbstractAsyncContextManager[str]]
    """Runs while a block runs; yields where clients or servers find it."""
    url: str = ""
    """Of the meta servers, where they are other processes."""
    console: str = ""
    """Where browsers find the console that runs beside it, or why there is none."""
    rocketmq: str = ""
    """Where RocketMQ clients find the gateway that runs beside it, or why there is none."""
    flushes: bool = False
    """It stores messages in the way that `flush` says."""
    hints: tuple[str, ...] = ()
    """What to try."""

    def welcome(self, config: NodeConfig) -> str:
        """What runs, where the data is, and what to try."""
        metrics = f"http://{config.host}:{config.metrics_port}/metrics"
        facts = [(role, f"{config.host}:{port}") for role, port in self.ports.items()]
        facts += [("metrics", metrics)] if config.metrics_port else []
        facts += [("console", self.console)] if self.console else []
        facts += [("rocketmq", self.rocketmq)] if self.rocketmq else []
        facts += [("meta", self.url)] if self.url else []
        flush = f" (flush {config.broker.flush})" if self.flushes else ""
        facts.append(("data", f"{config.data_dir}{flush}"))
        facts += zip(("try", ""), self.hints, strict=False)
        title = f" {self.title}" if self.title else ""
        head = f"TernMQ {__version__}{title} is running (pid {os.getpid()}); Ctrl-C stops it"
        return "\n".join([head, *(f"  {name:<7} {text}" for name, text in facts)])


def run_node(config: NodeConfig) -> int:
    """Run the all-in-one node until asked to stop; return the exit code."""
    command = "tern" if shutil.which("tern") else _own_command()
    url = "" if config.ports == PORT_BASE else f" --url {node_url(config)}"
    if config.tls.tls:
        url = f" --url '{with_tls_files(node_url(config), {'ca': config.tls.tls_ca_file})}'"
    roles = {"meta": config.meta_port, "broker": config.broker_port}
    node = ServerProcess(
        title="",
        ports=roles | ({"delay": config.delay_port} if config.delay_server else {}),
        serving=lambda config: serving_node(
            config, secret=own_node_secret(config, CLOCK), clock=CLOCK
        ),
        console=console_place(config),
        rocketmq=gateway_place(config),
        flushes=True,
        hints=(
            f"{command} send hello 'my first message'{url}",
            f"{command} consume hello --group me{url}",
        ),
    )
    return _run(config, node)


def run_delay(config: NodeConfig, url: str) -> int:
    """Run one delay server until asked to stop; return the exit code."""
    from ternmq.node.delay_process import serving_delay_alone

    server = ServerProcess(
        title=f"delay server {config.broker_group}",
        ports={"delay": config.delay_port},
        serving=lambda config: serving_delay_alone(
            config, url, secret=shared_node_secret(config, CLOCK), clock=CLOCK
        ),
        url=url,
    )
    return _run(config, server)


def run_broker(config: NodeConfig, url: str) -> int:
    """Run one broker until asked to stop; return the exit code."""
    from ternmq.node.broker_process import serving_broker_alone

    server = ServerProcess(
        title=f"broker {config.broker_group}",
        ports={"broker": config.broker_port},
        serving=lambda config: serving_broker_alone(
            config, url, secret=shared_node_secret(config, CLOCK), clock=CLOCK
        ),
        url=url,
        flushes=True,
    )
    return _run(config, server)


def run_meta(config: NodeConfig) -> int:
    """Run one meta server until asked to stop; return the exit code."""
    from ternmq.node.meta_process import serving_meta_alone

    server = ServerProcess(
        title="meta server",
        ports={"meta": config.meta_port},
        serving=lambda config: serving_meta_alone(
            config, secret=own_node_secret(config, CLOCK), clock=CLOCK
        ),
    )
    return _run(config, server)


def _run(config: NodeConfig, server: ServerProcess) -> int:
    config = replace(config, data_dir=config.data_dir.absolute())
    configure(level=config.log_level, as_json=config.log_json)
    os.umask(PRIVATE)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _allow_many_files()
    try:
        run_loop(_until_asked(config, server))
    except BaseExceptionGroup as failed:
        raise _first_cause(failed) from failed
    return 0


async def _until_asked(config: NodeConfig, server: ServerProcess) -> None:
    """Serve until a signal comes; one that comes while starting ends the start."""
    report_bugs()
    stopper = Stopper()
    stopper.install()
    ready = asyncio.Event()
    serving = asyncio.create_task(_serve(config, server, ready, stopper.asked), name="node")
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
    config: NodeConfig, server: ServerProcess, ready: asyncio.Event, asked: asyncio.Event
) -> None:
    async with AsyncExitStack() as stack:
        stack.enter_context(locked(config.data_dir))
        where = await stack.enter_async_context(server.serving(config))
        _warn(config)
        note(server.welcome(config))
        quiet_collector()
        ready.set()
        say(f"ready {config.broker_group} {where}" if server.url else f"ready {where}")
        sys.stdout.flush()
        if server.console:
            await stack.enter_async_context(console_beside(config, where))
        if server.rocketmq:
            await stack.enter_async_context(gateway_beside(config, where))
        await asked.wait()
        log.info("stopping")
    log.info("stopped")


def _warn(config: NodeConfig) -> None:
    """What an operator should not forget, at every start."""
    if config.exposed:
        log.warning(
            "insecure = true: whoever reaches this address may send, read and delete; keep others "
            "out by the network, or let in only who shows a certificate (tls_client_certificates)",
            host=config.host,
        )
    mode = stat.S_IMODE(config.data_dir.stat().st_mode)
    if mode & PRIVATE:
        log.warning(
            "other users may look into the data directory; chmod 700 keeps them out",
            data_dir=str(config.data_dir),
            mode=f"{mode:o}",
        )


def _own_command() -> str:
    """How this program was called, for people in the same folder."""
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
