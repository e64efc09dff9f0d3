"""`tern ledger`: where every message is, as each group sees it, and that the line adds up."""

from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.options import URL, Json, Url, use
from ternmq.cli.output import note, plain, show_json, show_table
from ternmq.wire.commands import LedgerLine

if TYPE_CHECKING:
    from ternmq.client.client import Client

STATES = (
    "ready",
    "in_flight",
    "waiting_retry",
    "acked",
    "filtered",
    "skipped",
    "dead",
    "expired",
)


def ledger(
    topic: Annotated[str, typer.Argument(help="Only this topic.")] = "",
    group: Annotated[str, typer.Argument(help="Only this group.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Account for every message: one line per lane of each group, states adding up to total."""

    async def job(mq: "Client") -> list[LedgerLine]:
        return await mq.admin.ledger(topic, group)

    lines = sorted(use(url, job), key=lambda line: (line.topic, line.group, line.lane))
    if as_json:
        show_json([plain(line) | {"sum": total(line)} for line in lines])
    else:
        columns = ["topic", "group", "lane", "#total", "="]
        show_table(
            [*columns, *[f"#{state.replace('_', ' ')}" for state in STATES], "balanced"],
            [
                (
                    line.topic,
                    line.group,
                    line.lane,
                    line.total,
                    "=",
                    *[getattr(line, state) for state in STATES],
                    "yes" if total(line) == line.total else f"NO, sum is {total(line)}",
                )
                for line in lines
            ],
        )
    broken = [line for line in lines if total(line) != line.total]
    if broken:
        note(f"error: {len(broken)} of {len(lines)} lines do not add up; this is a bug, report it")
        raise typer.Exit(1)


def total(line: LedgerLine) -> int:
    """The sum of the states, to be compared with what the broker says is the total."""
    return sum(getattr(line, state) for state in STATES)


def equation(line: LedgerLine) -> str:
    """`10 = 4 ready + 6 acked`; states without messages are left out."""
    parts = [
        f"{getattr(line, state)} {state.replace('_', ' ')}"
        for state in STATES
        if getattr(line, state)
    ]
    return f"{line.total} = {' + '.join(parts) or '0'}"
