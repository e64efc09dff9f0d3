"""`tern cluster`: a whole cluster on one machine, for trying it.

Every server is a real process, as it would be on a machine of its own; data, logs and the registry
are below one folder. Nothing here knows how a server works: the plan says which commands are run
(`cluster_plan`), the supervisor runs them (`supervisor`).
"""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq import __version__
from ternmq.cli.processes.up import FlushFlag
from ternmq.cli.terminal.options import ConfigFile, app_at
from ternmq.cli.terminal.output import note, say
from ternmq.core.errors import BadConfig

if TYPE_CHECKING:
    from ternmq.cli.processes.child_console import ConsolePlace
    from ternmq.cli.processes.cluster_plan import ClusterPlan, Planned
    from ternmq.cli.processes.cluster_tls import ClusterTls
    from ternmq.cli.processes.supervisor import Supervised

LOGS = "logs"
IN_STEP_S = 30.0
LOOK_S = 0.2
STOP_SECONDS_MAX = 35.0
"""Delay servers, brokers, meta servers, one kind after the other."""

Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, logins and rights; certificates are made.")
]
ConsoleFlag = Annotated[
    bool, typer.Option(envvar="TERN_CONSOLE", help="Run the web console beside it?")
]


def cluster(
    groups: Annotated[
        int | None, typer.Option(min=1, help="Broker groups: each holds a share (2).")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, max=9, help="Replicas of each group and delay server (2).")
    ] = None,
    metas: Annotated[int | None, typer.Option(min=1, help="Meta servers (1).")] = None,
    delays: Annotated[
        int | None, typer.Option(min=0, help="Delay servers, for messages for later (1).")
    ] = None,
    data_dir: Annotated[Path, typer.Option(help="Where everything is stored.")] = Path(
        "tern-cluster"
    ),
    ports: Annotated[
        int, typer.Option(metavar="BASE", help="First port; the others follow.")
    ] = 7700,
    flush: Annotated[
        FlushFlag | None, typer.Option(help="When an ack is given: on disk, or handed to the OS.")
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start a process that died again.")
    ] = False,
    secure: Secure = False,
    rocketmq: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=1, max=65_535, help="Run a gateway for RocketMQ clients, too."
        ),
    ] = None,
    console: ConsoleFlag = True,
    config: ConfigFile = None,
) -> None:
    """Run a whole cluster on this machine: meta servers, broker groups, delay servers.

    When all are up, one line `ready tern://127.0.0.1:BASE` (with every meta server) appears on
    stdout; everything else goes to stderr, and the logs of the servers to files. Ctrl-C or SIGTERM
    stops all of them. Started again on the same folder it goes on as the cluster that it was; it
    may grow.
    """
    from ternmq.cli.processes.child_console import ConsolePlace
    from ternmq.cli.processes.cluster_folder import is_secured, keep_shape, settle_shape
    from ternmq.cli.processes.cluster_plan import SECRET_FILE, Extra, make_plan
    from ternmq.cli.processes.lock import locked
    from ternmq.cli.processes.node import PRIVATE
    from ternmq.core.process import run_loop
    from ternmq.node.node_secret import make_node_secret

    _check_config(config)
    os.umask(PRIVATE)
    folder = data_dir.absolute()
    extra = Extra(
        everybody=("--config", str(config.absolute())) if config is not None else (),
        brokers=("--flush", flush.value) if flush is not None else (),
        tls=secure or is_secured(folder),
        rocketmq_port=_gateway_port(rocketmq, tls=secure or is_secured(folder)),
    )
    with locked(folder):
        shape = settle_shape(folder, groups=groups, replicas=replicas, metas=metas, delays=delays)
        plan = make_plan(shape, folder, ports, extra)
        for planned in plan.everybody:
            _check_port(planned)
        keep_shape(folder, shape)
        make_node_secret(folder / SECRET_FILE)
        files = _certificates(folder) if extra.tls else None
        place = ConsolePlace.beside(plan, ports, wanted=console, secured=extra.tls)
        run_loop(_run(plan, folder, files, place, restart=restart))


def _check_config(config: Path | None) -> None:
    from ternmq.cli.processes.up import read_config

    if read_config(config, {}).tls.tls:
        raise BadConfig(
            "a config file with tls is of one server: leave it out and say --secure, which makes "
            "certificates for all of them; or start the servers one by one (tern meta serve, …)"
        )


def _gateway_port(port: int | None, *, tls: bool) -> int:
    from ternmq.cli.processes.child_gateway import missing_parts

    if port is None:
        return 0
    if tls:
        raise BadConfig(
            "--rocketmq and --secure exclude each other: start the gateway as a user that you made "
            "for it, TERN_PASSWORD_FILE=FILE tern gateway serve --url terns://USER@HOST:PORT"
        )
    if missing_parts():
        raise BadConfig(f"--rocketmq: {missing_parts()}")
    return port


def _certificates(folder: Path) -> "ClusterTls":
    try:
        from ternmq.cli.processes.cluster_tls import ClusterTls
    except ImportError as error:
        raise BadConfig(
            "certificates are made by the package cryptography: pip install 'ternmq[security]'"
        ) from error
    return ClusterTls(folder)


async def _run(
    plan: "ClusterPlan",
    folder: Path,
    files: "ClusterTls | None",
    place: "ConsolePlace",
    *,
    restart: bool,
) -> None:
    """Until a signal comes; one that comes while starting ends the start."""
    from ternmq.cli.processes.shutdown import Stopper

    stopper = Stopper(STOP_SECONDS_MAX)
    stopper.install()
    serving = asyncio.create_task(
        _serve(plan, folder, files, place, restart=restart), name="cluster"
    )
    asked = asyncio.create_task(stopper.asked.wait(), name="stop")
    try:
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        await asyncio.wait([serving])
        if not serving.cancelled():
            serving.result()
    finally:
        asked.cancel()
        stopper.done()


async def _serve(
    plan: "ClusterPlan",
    folder: Path,
    files: "ClusterTls | None",
    place: "ConsolePlace",
    *,
    restart: bool,
) -> None:
    """Start in order, say so, wait to be cancelled, stop in reverse order."""
    from ternmq.cli.processes.child_console import console_process
    from ternmq.cli.processes.cluster_folder import in_waves
    from ternmq.cli.processes.supervisor import Supervised, start_together, stop_together

    logs = folder / LOGS
    logs.mkdir(exist_ok=True)
    settings = {} if files is None else files.prepare(plan)

    def supervised(planned: "Sequence[Planned]") -> list[Supervised]:
        return [
            Supervised(each, logs / f"{each.name}.log", note, settings.get(each.name))
            for each in planned
        ]

    metas, brokers, delays = map(supervised, (plan.metas, plan.brokers, plan.delays))
    gateways = supervised(plan.gateways)
    everybody = [*metas, *brokers, *delays, *gateways]
    try:
        await start_together(metas)
        for wave in in_waves([*plan.brokers, *plan.delays], folder):
            await start_together([each for each in everybody if each.planned in wave])
        if len(plan.brokers) > len(plan.groups):
            await _in_step(plan, folder, files)
        await start_together(gateways)
        for server in everybody:
            server.watch(restart=restart)
        admin = "" if files is None else files.admin_url(plan)
        console = None
        if files is not None and place.runs:
            console = files.console_files(plan)
            await _console_user(admin)
        _welcome(plan, everybody, folder, admin, place.shown)
        say(f"ready {plan.url}")
        sys.stdout.flush()
        async with console_process(place, plan.url, logs, console):
            await asyncio.Event().wait()
    finally:
        # Nobody is left who sends to what stops.
        for part in (gateways, delays, brokers, metas):
            await stop_together(part)


async def _in_step(plan: "ClusterPlan", folder: Path, files: "ClusterTls | None") -> None:
    """Until every replica has what its master has: before that a broker group takes nothing."""
    from ternmq.client.client import connect

    url, filed = _admin_url(plan, folder)
    if files is not None:
        url, filed = files.admin_url(plan), None
    async with connect(url, app=app_at(url), password_file=filed) as mq:
        for _ in range(int(IN_STEP_S / LOOK_S)):
            states = [*await mq.admin.brokers(), *await mq.admin.brokers("delay")]
            in_step = [state for state in states if state.in_sync]
            led = {state.group for state in states if state.role == "master"}
            if len(in_step) == len(plan.brokers) + len(plan.delays) and plan.groups <= led:
                return
            await asyncio.sleep(LOOK_S)
    note(f"warning: not all replicas are in step after {IN_STEP_S:g} s; 'tern broker list' shows")


async def _console_user(admin: str) -> None:
    """The user as which the console looks: it comes by its certificate."""
    from ternmq.client.client import connect
    from ternmq.core.errors import AlreadyExists
    from ternmq.node.console_user import CONSOLE_USER, GRANTS

    async with connect(admin, app=app_at(admin)) as mq:
        with suppress(AlreadyExists):
            await mq.admin.add_user(CONSOLE_USER)
        for line in GRANTS:
            await mq.admin.grant(CONSOLE_USER, line.action, line.resource)


def _admin_url(plan: "ClusterPlan", folder: Path) -> tuple[str, Path | None]:
    """Of a cluster with security on: with the admin that it made, and the file of its password."""
    from ternmq.meta.access.access_commands import ADMIN, ADMIN_FILE

    filed = next(folder.glob(f"*/{ADMIN_FILE}"), None)
    return (plan.url if filed is None else plan.url.replace("://", f"://{ADMIN}@", 1)), filed


def _welcome(
    plan: "ClusterPlan", servers: "Sequence[Supervised]", folder: Path, admin: str, console: str
) -> None:
    lines = [
        f"  {server.planned.name:<10} {server.planned.address:<16} pid {server.pid}"
        for server in servers
    ]
    url = f"--url '{admin}'" if admin else f"--url {plan.url}"
    note(
        f"TernMQ {__version__}: a cluster of {len(servers)} processes is running; Ctrl-C stops it\n"
        + "\n".join(lines)
        + f"\n  data       {folder}, logs in {folder / LOGS}"
        + (f"\n  console    {console}{_who(folder) if admin else ''}" if console else "")
        + f"\n  try        tern broker list {url}"
    )


def _who(folder: Path) -> str:
    """As whom people log in at the console of a secured cluster first."""
    from ternmq.meta.access.access_commands import ADMIN, ADMIN_FILE

    filed = next(folder.glob(f"*/{ADMIN_FILE}"), None)
    return "" if filed is None else f", log in as {ADMIN}: its password is in {filed}"


def _check_port(planned: "Planned") -> None:
    """Before anything is started: a wrong --ports is one line."""
    from ternmq.rpc.server import cannot_listen

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", planned.port))
        except OSError as error:
            reason = cannot_listen("127.0.0.1", planned.port, error)
            raise BadConfig(f"{planned.name}: {reason}") from error
