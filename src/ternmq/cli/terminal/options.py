"""Flags that every command has, spelt once, and how a command gets its client.

`use(url, job)` connects, runs the job, closes, and leaves with the right exit code when somebody
presses Ctrl-C. The client is imported here and not at the top of a module, so that a command that
needs no node (`--help`) does not pay for it.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ternmq.cli.terminal.output import note, reader_left
from ternmq.cli.terminal.printable import printable_lines
from ternmq.core.errors import BadRequest, TopicNotFound, Unavailable
from ternmq.discovery.url_user import split_user

if TYPE_CHECKING:
    from ternmq.client.client import Client

URL = "tern://127.0.0.1:7700"
APP = "tern-cli"
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
WAIT_S = 1.0

Url = Annotated[
    str, typer.Option("--url", envvar="TERN_URL", help="Which node or cluster to talk to.")
]
MetaUrl = Annotated[
    str | None, typer.Option("--url", help="The meta servers, all of them (tern://127.0.0.1:7700).")
]
Json = Annotated[bool, typer.Option("--json", help="Show the result as JSON.")]
AlreadyJson = Annotated[bool, typer.Option("--json", help="It is JSON with or without it.")]
Wide = Annotated[
    bool, typer.Option("--wide", help="More columns: who sent it, and what it is marked with.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
StoredSince = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Stored at or after: 1h (ago), or ISO 8601."),
]
StoredBefore = Annotated[
    str | None,
    typer.Option("--to", metavar="TIME", help="Stored before: 5m (ago), or ISO 8601."),
]

# Of every command that runs a server.
Host = Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")]
AdvertisedHost = Annotated[str | None, typer.Option(help="Address that clients are told to use.")]
MetricsPort = Annotated[
    int | None, typer.Option(min=0, help="Show /metrics for Prometheus on this port.")
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", help="Listen where others reach it, though everybody is let in unproven."
    ),
]
NodeSecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Secret that all servers of the cluster share (node-secret)."
    ),
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file with settings.")]
LogJson = Annotated[bool | None, typer.Option("--log-json", help="Log lines on stderr as JSON.")]

Create = Annotated[
    bool, typer.Option("--create", help="Make the topic if it is not there; else that is an error.")
]

T = TypeVar("T")


class ServerFlag(StrEnum):
    """Which servers a group is of."""

    realtime = "realtime"
    delay = "delay"


KindFlag = Annotated[ServerFlag, typer.Option("--kind", help="Of brokers, or a delay server.")]


def use(
    url: str,
    job: "Callable[[Client], Awaitable[T]]",
    *,
    leaves: bool = False,
    waits: bool = False,
) -> T:
    """Run `job` with a connected client.

    `waits`: while nobody is there to connect to it says so and tries again, for services.

    `leaves`: SIGTERM cancels the job like Ctrl-C, so that it can leave its group; a second one ends
    the process. Only for jobs that never block the loop: they would not hear the first.
    """
    from ternmq.cli.terminal.logs import configure
    from ternmq.client.client import connect
    from ternmq.core.process import run_loop

    configure(level="warning")

    terminated = False

    async def connected() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            loop.remove_signal_handler(signal.SIGTERM)
            task.cancel()

        if leaves:
            loop.add_signal_handler(signal.SIGTERM, terminate)
        async with contextlib.AsyncExitStack() as stack:
            # uvloop leaves its handler behind, and with it a process that is deaf to SIGTERM.
            stack.callback(loop.remove_signal_handler, signal.SIGTERM)

            def attempt() -> "Awaitable[Client]":
                return stack.enter_async_context(connect(url, app=app_at(url)))

            mq = await (until_there(attempt, "the cluster") if waits else attempt())
            return await job(mq)

    try:
        return run_loop(connected())
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except asyncio.CancelledError:
        if not terminated:
            raise
        raise typer.Exit(EXIT_TERMINATED) from None
    except BrokenPipeError:
        raise reader_left() from None


def app_at(url: str) -> str:
    """What the command line calls itself: a user is its own application."""
    return split_user(url)[0] or APP


async def until_there(
    attempt: "Callable[[], Awaitable[T]]", what: str, *, pause_s: float = WAIT_S
) -> T:
    """Try until it is not `Unavailable`; say so once, and when the reason changes."""
    reason = ""
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if error.message != reason:
                reason = error.message
                note(f"waiting for {what}: {reason}")
        await asyncio.sleep(pause_s)


async def must_exist(mq: "Client", topic: str) -> None:
    """A misspelt topic is an error, not a new topic that nobody sends to."""
    from difflib import get_close_matches

    names = [known.name for known in await mq.admin.topics()]
    if topic not in names:
        near = get_close_matches(topic, names, 1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise TopicNotFound(f"there is no topic {topic!r}; {meant}--create makes it")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; without a terminal `--yes` is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadRequest(f"{question} Nobody is here to answer: say --yes")
    if not typer.confirm(printable_lines(question), err=True):
        raise typer.Exit(1)
