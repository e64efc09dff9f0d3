"""`tern figures`: what servers measure, as their metrics pages have it, without those ports."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url
from ternmq.cli.terminal.output import show_json, show_table
from ternmq.cli.terminal.partial_answers import end_incomplete, use_tolerant

if TYPE_CHECKING:
    pass


class FiguresOf(StrEnum):
    """Which servers are asked."""

    REALTIME = "realtime"
    DELAY = "delay"


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METRIC]...", help="Only these, with all their series."),
    ] = None,
    kind: Annotated[FiguresOf, typer.Option(help="Brokers, or delay servers.")] = (
        FiguresOf.REALTIME
    ),
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Show what brokers or delay servers measure about themselves."""
    found, missing = use_tolerant(url, lambda admin: admin.figures(names or [], kind.value))
    if as_json:
        show_json(found)
    else:
        show_table(
            ["server", "metric", "labels", "#value"],
            [
                (server, each.name, " ".join(each.labels) or None, f"{each.value:g}")
                for server, all_of_it in found.items()
                for each in all_of_it.values
            ],
        )
    end_incomplete(missing)
