"""`tern gateway serve`: RocketMQ 5 clients, unchanged, on a TernMQ cluster; its own process."""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Url
from ternmq.cli.terminal.output import note, say
from ternmq.core.errors import BadConfig

if TYPE_CHECKING:
    from ternmq.gateway.config import GatewayConfig

app = typer.Typer(help="A gateway for RocketMQ 5 clients.", no_args_is_help=True)


class StartFlag(StrEnum):
    """The values of --start."""

    EARLIEST = "earliest"
    LATEST = "latest"


@app.callback()
def gateway() -> None:
    """A gateway for RocketMQ 5 clients."""


@app.command()
def serve(
    url: Url = URL,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 8081,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    ordered: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="New groups named so are ordered (FIFO); repeat it."),
    ] = None,
    start: Annotated[StartFlag, typer.Option(help="Where new groups begin.")] = StartFlag.EARLIEST,
    access_keys: Annotated[
        bool,
        typer.Option(
            help="Clients sign their calls ('tern access-key create'); each comes as its user."
        ),
    ] = False,
    topic_alias: Annotated[
        list[str] | None,
        typer.Option(metavar="ALIAS=TOPIC", help="What clients call a topic; repeat it."),
    ] = None,
    group_alias: Annotated[
        list[str] | None,
        typer.Option(metavar="ALIAS=GROUP", help="What clients call a group; repeat it."),
    ] = None,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="Certificate (PEM) for clients that speak TLS; one is made without."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
) -> None:
    """Let RocketMQ 5 clients send and consume, on loopback; `tern up --rocketmq PORT` starts one.

    It waits for the cluster. When it listens, one line `ready HOST:PORT` appears on stdout.
    """
    import uvloop

    from ternmq.cli.terminal.logs import configure
    from ternmq.gateway.config import GatewayConfig

    configure(level="warning")
    config = GatewayConfig(
        url=url,
        host=host,
        port=port,
        ordered_groups=tuple(ordered or ()),
        start="latest" if start is StartFlag.LATEST else "earliest",
        access_keys=access_keys,
        topic_aliases=_aliases(topic_alias),
        group_aliases=_aliases(group_alias),
        certificate_file=str(tls_certificate or ""),
        key_file=str(tls_key or ""),
    )
    uvloop.run(_run(config))


def _aliases(written: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in written or ():
        alias, equals, name = each.partition("=")
        if not (alias and equals and name):
            raise BadConfig(f"{each!r} is no alias: write ALIAS=NAME")
        found[alias] = name
    return found


async def _run(config: "GatewayConfig") -> None:
    from ternmq.cli.processes.collector import quiet_collector
    from ternmq.cli.processes.shutdown import Stopper
    from ternmq.core.clock import SystemClock
    from ternmq.core.lifecycle import report_bugs
    from ternmq.gateway.process import serving_gateway

    report_bugs()
    stopper = Stopper()
    stopper.install()
    try:
        async with serving_gateway(config, SystemClock()) as address:
            quiet_collector()
            note(f"RocketMQ 5 clients are served at {address}; Ctrl-C stops it")
            say(f"ready {address}")
            sys.stdout.flush()
            await stopper.asked.wait()
    except* asyncio.CancelledError:
        pass
    finally:
        stopper.done()
