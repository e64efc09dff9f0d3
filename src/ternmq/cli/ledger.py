"""`tern ledger`: where every message is, as each group sees it, and that the line adds up."""

from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.options import URL, Json, Url, use
from ternmq.cli.output import note, plain, say, show_json, show_table
from ternmq.wire.commands import LedgerLine
from ternmq.wire.delays import DelayLedgerLine

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
    """Account for every message: one line per lane of each group, states adding up to total.

    A topic that had messages for later has a second kind of line, that of the delay servers.
    """

    async def job(mq: "Client") -> tuple[list[LedgerLine], list[DelayLedgerLine]]:
        lines = await mq.admin.ledger(topic, group)
        routes = await mq.admin.routes()
        delays = not group and any(route.kind == "delay" for route in routes)
        return lines, await mq.admin.delays.ledger(topic) if delays else []

    lines, later = use(url, job)
    lines.sort(key=lambda line: (line.topic, line.group, line.lane))
    if as_json:
        show_json(
            [plain(line) | {"sum": total(line)} for line in lines]
            + [plain(line) | {"lane": "delay", "sum": delay_total(line)} for line in later]
        )
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
        _show_delays(later)
    broken = sum(total(line) != line.total for line in lines)
    broken += sum(delay_total(line) != line.accepted for line in later)
    if broken:
        count = len(lines) + len(later)
        note(f"error: {broken} of {count} lines do not add up; this is a bug, report it")
        raise typer.Exit(1)


def _show_delays(lines: list[DelayLedgerLine]) -> None:
    if not lines:
        return
    say("")
    show_table(
        ["for later", "#accepted", "=", "#pending", "#dispatched", "#cancelled", "balanced"],
        [
            (
                line.topic,
                line.accepted,
                "=",
                line.pending,
                line.dispatched,
                line.cancelled,
                "yes" if delay_total(line) == line.accepted else f"NO, sum is {delay_total(line)}",
            )
            for line in lines
        ],
    )


def delay_total(line: DelayLedgerLine) -> int:
    """The sum of what became of delayed messages."""
    return line.pending + line.dispatched + line.cancelled


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
