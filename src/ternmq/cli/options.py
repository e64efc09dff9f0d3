"""Flags that every command has, spelt once, and how a command gets its client.

`use(url, job)` connects, runs the job, closes, and leaves with the right exit code when somebody
presses Ctrl-C. The client is imported here and not at the top of a module, so that a command that
needs no node (`--help`) does not pay for it.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.client import Client

URL = "tern://127.0.0.1:7700"
APP = "tern-cli"
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

Url = Annotated[
    str, typer.Option("--url", envvar="TERN_URL", help="Which node or cluster to talk to.")
]
Json = Annotated[bool, typer.Option("--json", help="Show the result as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

T = TypeVar("T")


def use(url: str, job: "Callable[[Client], Awaitable[T]]") -> T:
    """Run `job` with a connected client."""
    import uvloop

    from ternmq.cli.logs import configure
    from ternmq.client.client import connect

    configure(level="warning")

    async def connected() -> T:
        async with connect(url, app=APP) as mq:
            return await job(mq)

    try:
        return uvloop.run(connected())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader of our output left (`| head`). What is buffered must go somewhere at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_PIPE_CLOSED) from None


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; without a terminal `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadRequest(f"{question} Nobody is here to answer: say --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)
