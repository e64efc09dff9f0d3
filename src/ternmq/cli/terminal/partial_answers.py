"""Answers that are put together from several broker groups, as people see them.

A broker group that does not answer is named, what is missing is said, and the exit code is 1: a sum
that lacks a part must not look like the whole. Where there is one broker group nothing of this
shows.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ternmq.cli.terminal.options import use
from ternmq.cli.terminal.output import note

if TYPE_CHECKING:
    from ternmq.client.admin.admin import Admin
    from ternmq.client.client import Client

EXIT_INCOMPLETE = 1
T = TypeVar("T")

BrokerGroup = Annotated[
    str,
    typer.Option("--broker-group", metavar="NAME", help="Only this one; a sequence needs it."),
]


def use_tolerant(url: str, ask: "Callable[[Admin], Awaitable[T]]") -> tuple[T, Mapping[str, str]]:
    """Run one call with the answers of those that answer; who did not, and why."""

    async def job(mq: "Client") -> tuple[T, Mapping[str, str]]:
        admin = mq.admin.tolerant()
        return await ask(admin), admin.missing

    return use(url, job)


def note_missing(missing: Mapping[str, str]) -> None:
    """Say whose part is not in what is shown."""
    for group, why in sorted(missing.items()):
        note(f"error: broker group {group} does not answer, its part is missing: {why}")


def end_incomplete(missing: Mapping[str, str]) -> None:
    """Note what is missing, as the last thing that a command says."""
    if missing:
        note_missing(missing)
        raise typer.Exit(EXIT_INCOMPLETE)
