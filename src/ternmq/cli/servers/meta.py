"""`tern meta`: a meta server as a process of its own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ternmq.cli.terminal.options import (
    AdvertisedHost,
    ConfigFile,
    Host,
    Insecure,
    LogJson,
    MetricsPort,
    NodeSecretFile,
)

app = typer.Typer(help="Meta servers: names, ids, and who is there.", no_args_is_help=True)


@app.callback()
def _commands() -> None:
    """Meta servers: names, ids, and who is there."""


@app.command()
def serve(
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="sqlite:///FILE, postgresql://…, mysql://… or zookeeper://…; a file by default.",
        ),
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, help="Port to listen on (7700).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Its own folder (./tern-data).")] = None,
    host: Host = None,
    insecure: Insecure = None,
    advertised_host: AdvertisedHost = None,
    metrics_port: MetricsPort = None,
    node_secret_file: NodeSecretFile = None,
    config: ConfigFile = None,
    log_json: LogJson = None,
) -> None:
    """Run a meta server; several may share one registry.

    When it is ready, one line `ready tern://HOST:PORT` appears on stdout. Clients and servers are
    given all of them: tern://host1:7700,host2:7700.
    """
    from ternmq.cli.processes.node import run_meta
    from ternmq.cli.processes.up import read_config

    flags: dict[str, Any] = {
        "registry": registry,
        "ports": port,
        "data_dir": data_dir,
        "host": host,
        "insecure": insecure,
        "advertised_host": advertised_host,
        "metrics_port": metrics_port,
        "node_secret_file": node_secret_file,
        "log_json": log_json,
    }
    raise typer.Exit(run_meta(read_config(config, flags)))
