"""`tern up`: read the settings, start the all-in-one node, stop it cleanly."""

import os
from enum import StrEnum
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
from ternmq.core.errors import BadConfig


class FlushFlag(StrEnum):
    """The values of --flush; the meaning is in `broker.config.Flush`."""

    SYNC = "sync"
    ASYNC = "async"


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where everything is stored (./tern-data).")
    ] = None,
    ports: Annotated[
        int | None, typer.Option(metavar="BASE", help="First port (7700); the others follow.")
    ] = None,
    config: ConfigFile = None,
    flush: Annotated[
        FlushFlag | None, typer.Option(help="When an ack is given: on disk, or handed to the OS.")
    ] = None,
    auto_create: Annotated[
        bool | None, typer.Option(help="Does sending to an unknown topic make it?")
    ] = None,
    delay: Annotated[
        bool | None, typer.Option(help="Run a delay server too, for messages for later?")
    ] = None,
    console: Annotated[bool | None, typer.Option(help="Run the web console beside it?")] = None,
    rocketmq: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="Run the gateway for RocketMQ clients beside it."),
    ] = None,
    host: Host = None,
    insecure: Insecure = None,
    advertised_host: AdvertisedHost = None,
    metrics_port: MetricsPort = None,
    node_secret_file: NodeSecretFile = None,
    log_json: LogJson = None,
) -> None:
    """Start a node: registry, broker and delay server in one process.

    When it is ready, one line `ready tern://HOST:PORT` appears on stdout; everything else goes to
    stderr. Ctrl-C or SIGTERM stops it cleanly.
    """
    from ternmq.cli.processes.node import run_node

    if not __debug__:
        raise BadConfig("a node does not run under python -O: it relies on its asserts")
    flags: dict[str, Any] = {
        "data_dir": data_dir,
        "ports": ports,
        "flush": None if flush is None else flush.value,
        "auto_create_topics": auto_create,
        "delay_server": delay,
        "console": console,
        "rocketmq_port": rocketmq,
        "host": host,
        "insecure": insecure,
        "advertised_host": advertised_host,
        "metrics_port": metrics_port,
        "node_secret_file": node_secret_file,
        "log_json": log_json,
    }
    raise typer.Exit(run_node(read_config(config, flags)))


def read_config(file: Path | None, flags: dict[str, Any]) -> Any:
    """File, then environment, then flags."""
    from ternmq.cli.terminal.output import note
    from ternmq.node.config import build, from_environment, parse_file, suspects

    found: dict[str, Any] = {}
    if file is not None:
        try:
            found = parse_file(file.read_text(encoding="utf-8"), source=str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise BadConfig(f"cannot read {file}: {error}") from error
    for warning in suspects(os.environ):
        note(f"warning: {warning}")
    texts = {name: str(flag) if isinstance(flag, Path) else flag for name, flag in flags.items()}
    return build(found, from_environment(os.environ), texts)
