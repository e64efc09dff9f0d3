"""`tern broker`: a broker as a process of its own, and which brokers there are."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ternmq.cli.options import (
    URL,
    AdvertisedHost,
    ConfigFile,
    Host,
    Json,
    LogJson,
    MetaUrl,
    MetricsPort,
    Url,
    use,
)
from ternmq.cli.output import show_json, show_table
from ternmq.cli.up import FlushFlag

app = typer.Typer(help="Brokers: run one, and see which there are.", no_args_is_help=True)


@app.command()
def serve(
    url: MetaUrl = None,
    name: Annotated[str | None, typer.Option(help="Its broker group (main).")] = None,
    port: Annotated[int | None, typer.Option(min=2, help="Port to listen on (7701).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where it stores (./tern-data).")] = None,
    flush: Annotated[
        FlushFlag | None, typer.Option(help="When an ack is given: on disk, or handed to the OS.")
    ] = None,
    host: Host = None,
    advertised_host: AdvertisedHost = None,
    metrics_port: MetricsPort = None,
    config: ConfigFile = None,
    log_json: LogJson = None,
) -> None:
    """Run a broker; --url names the meta servers, all of them.

    When it is ready, one line `ready NAME ADDRESS` appears on stdout. `tern up` runs a broker by
    itself; this is for more of them.
    """
    from ternmq.cli.node import run_broker
    from ternmq.cli.up import read_config

    flags: dict[str, Any] = {
        "url": url,
        "broker_group": name,
        "ports": None if port is None else port - 1,
        "data_dir": data_dir,
        "flush": None if flush is None else flush.value,
        "host": host,
        "advertised_host": advertised_host,
        "metrics_port": metrics_port,
        "log_json": log_json,
    }
    settings = read_config(config, flags)
    raise typer.Exit(run_broker(settings, settings.url or URL))


@app.command("list")
def list_brokers(url: Url = URL, as_json: Json = False) -> None:
    """The brokers that are there: group, role, epoch, state, address."""
    from ternmq.client.client import Client

    async def job(mq: Client) -> list[dict[str, Any]]:
        return [
            {
                "group": route.broker_group,
                "role": route.role,
                "epoch": status.epoch if status else None,
                "state": status.state if status else "does not answer",
                "address": route.address,
                "pid": status.pid if status else None,
                "lag": 0 if status else None,
            }
            for route, status in await mq.admin.brokers()
        ]

    lines = use(url, job)
    if as_json:
        show_json(lines)
        return
    heads = ["group", "role", "epoch", "state", "address", "pid", "lag"]
    shown = [["-" if line[head] is None else str(line[head]) for head in heads] for line in lines]
    show_table(heads, shown)
