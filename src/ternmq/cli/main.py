"""The entry point: which commands there are, and how a failure is told.

A mistake of the user or a node that does not answer is one line on stderr, never a stack trace:
exit code 2 for what can never work (a bad name, a bad setting), 1 for what failed. A stack trace
means a bug of ours. Command modules import nothing heavy at the top, so `tern --help` is quick.
"""

import sys
from typing import Annotated

import typer

from ternmq import __version__
from ternmq.cli.jobs import outbox, pipeline
from ternmq.cli.messages import consume, dead, delay, find, half, ledger, send
from ternmq.cli.processes import cluster, up
from ternmq.cli.servers import backup, bench, broker, doctor, meta
from ternmq.cli.terminal.output import flush, note
from ternmq.cli.topics import group, limit, topic
from ternmq.core.errors import BadRequest, TernError

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="tern",
    help="TernMQ: a message queue in which every message is accounted for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("cluster")(cluster.cluster)
app.add_typer(meta.app, name="meta")
app.add_typer(broker.app, name="broker")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(limit.app, name="limit")
app.add_typer(dead.app, name="dead")
app.add_typer(delay.app, name="delay")
app.add_typer(outbox.app, name="outbox")
app.add_typer(half.app, name="half")
app.command("send")(send.send)
app.command("consume")(consume.consume)
app.command("browse")(consume.browse)
app.command("find")(find.find)
app.add_typer(pipeline.app, name="pipeline")
app.command("ledger")(ledger.ledger)
app.command("bench")(bench.bench)
app.command("doctor")(doctor.doctor)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("verify")(backup.verify)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def tern(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """TernMQ: a message queue in which every message is accounted for."""


def run() -> None:
    """What the `tern` script calls."""
    try:
        try:
            app(prog_name="tern")
        finally:
            flush()
    except TernError as error:
        note(f"error: {error.message}")
        sys.exit(EXIT_USAGE if isinstance(error, BadRequest) else EXIT_FAILED)


if __name__ == "__main__":
    run()
