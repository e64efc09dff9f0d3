"""The entry point: which commands there are, and how a failure is shown.

A mistake of the user or a node that does not answer is one line on stderr, never a stack trace:
exit code 2 for what can never work (a bad name, a bad setting), 1 for what failed. With `--json`
that line is JSON. A stack trace means a bug of ours. Command modules import nothing heavy at the
top, so `tern --help` is quick.
"""

import sys
from typing import Annotated

import typer

from ternmq import __version__
from ternmq.cli.access import access_key, grant, key, quota, token, user
from ternmq.cli.apps.run import run as run_app
from ternmq.cli.jobs import jobs, outbox, pipeline
from ternmq.cli.messages import (
    consume,
    dead,
    delay,
    export,
    find,
    half,
    ledger,
    search,
    send,
    trace,
    unsent,
)
from ternmq.cli.processes import cluster, console, gateway, settings, up
from ternmq.cli.servers import (
    backup,
    bench,
    broker,
    clients,
    doctor,
    document,
    figures,
    meta,
    secure,
    status,
)
from ternmq.cli.terminal.arguments import arranged, wants_json
from ternmq.cli.terminal.extras import what_to_install
from ternmq.cli.terminal.hints import USAGE_ERROR, HintingGroup
from ternmq.cli.terminal.options import EXIT_INTERRUPTED
from ternmq.cli.terminal.output import flush, note
from ternmq.cli.terminal.printable import json_text
from ternmq.cli.topics import definitions, group, limit, rows, topic
from ternmq.core.errors import BadRequest, TernError

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="tern",
    cls=HintingGroup,
    help="TernMQ: a message queue in which every message is accounted for.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up")(up.up)
app.command("cluster")(cluster.cluster)
app.command("run")(run_app)
app.command("console")(console.console)
app.add_typer(gateway.app, name="gateway", cls=HintingGroup)
app.command("status")(status.status)
app.command("figures")(figures.figures)
app.add_typer(meta.app, name="meta", cls=HintingGroup)
app.add_typer(broker.app, name="broker", cls=HintingGroup)
app.add_typer(clients.app, name="clients", cls=HintingGroup)
app.add_typer(topic.app, name="topic", cls=HintingGroup)
app.add_typer(group.app, name="group", cls=HintingGroup)
app.command("leases")(rows.leases)
app.command("waiting")(rows.waiting)
app.add_typer(limit.app, name="limit", cls=HintingGroup)
app.add_typer(user.app, name="user", cls=HintingGroup)
app.add_typer(grant.app, name="grant", cls=HintingGroup)
app.add_typer(token.app, name="token", cls=HintingGroup)
app.add_typer(access_key.app, name="access-key", cls=HintingGroup)
app.add_typer(key.app, name="key", cls=HintingGroup)
app.command("erase")(key.erase)
app.add_typer(quota.app, name="quota", cls=HintingGroup)
app.add_typer(dead.app, name="dead", cls=HintingGroup)
app.add_typer(delay.app, name="delay", cls=HintingGroup)
app.add_typer(outbox.app, name="outbox", cls=HintingGroup)
app.add_typer(half.app, name="half", cls=HintingGroup)
app.add_typer(unsent.app, name="unsent", cls=HintingGroup)
app.command("send")(send.send)
app.command("consume")(consume.consume)
app.command("browse")(consume.browse)
app.command("find")(find.find)
app.command("search")(search.search)
app.command("trace")(trace.trace)
app.command("explain")(trace.explain)
app.add_typer(jobs.app, name="jobs", cls=HintingGroup)
app.add_typer(pipeline.app, name="pipeline", cls=HintingGroup)
app.command("ledger")(ledger.ledger)
app.command("bench")(bench.bench)
app.add_typer(document.app, name="document", cls=HintingGroup)
app.command("doctor")(doctor.doctor)
app.add_typer(settings.app, name="config", cls=HintingGroup)
app.add_typer(secure.app, name="secure", cls=HintingGroup)
app.command("version")(settings.version)
app.command("export")(export.export)
app.command("import")(export.import_)
app.add_typer(definitions.app, name="definitions", cls=HintingGroup)
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
    command = typer.main.get_command(app)
    words = arranged(command, sys.argv[1:])
    as_json = wants_json(words)
    try:
        try:
            # Click tells usage errors itself, in colours; as JSON we do.
            left = command.main(words, prog_name="tern", standalone_mode=not as_json)
        finally:
            flush()
    except TernError as error:
        code = EXIT_USAGE if isinstance(error, BadRequest) else EXIT_FAILED
        _fail(error.code, error.message, code, as_json=as_json)
    except USAGE_ERROR as error:
        _fail("usage", error.format_message(), EXIT_USAGE, as_json=True)  # type: ignore[attr-defined]
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except ModuleNotFoundError as error:
        advice = what_to_install(error.name)
        if advice is None:
            raise
        _fail("not_installed", advice, EXIT_FAILED, as_json=as_json)
    else:
        sys.exit(left if isinstance(left, int) else 0)


def _fail(code: str, message: str, exit_code: int, *, as_json: bool) -> None:
    if as_json:
        note(json_text({"error": {"code": code, "message": message}}))
    else:
        note(f"error: {message}")
    sys.exit(exit_code)


if __name__ == "__main__":
    run()
