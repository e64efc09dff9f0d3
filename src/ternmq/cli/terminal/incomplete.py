"""Answers that are put together from several broker groups, as people see them.

A broker group that does not answer is named, what is missing is said, and the exit code is 1: a sum
that lacks a part must not look like the whole. Where there is one broker group nothing of this
shows.
"""

from collections.abc import Mapping
from typing import Annotated

import typer

from ternmq.cli.terminal.output import note

EXIT_INCOMPLETE = 1

BrokerGroup = Annotated[
    str,
    typer.Option("--broker-group", metavar="NAME", help="Only this one; a sequence needs it."),
]


def note_missing(missing: Mapping[str, str]) -> None:
    """Say whose part is not in what is shown."""
    for group, why in sorted(missing.items()):
        note(f"error: broker group {group} does not answer, its part is missing: {why}")


def end_incomplete(missing: Mapping[str, str]) -> None:
    """Note what is missing, as the last thing that a command says."""
    if missing:
        note_missing(missing)
        raise typer.Exit(EXIT_INCOMPLETE)
