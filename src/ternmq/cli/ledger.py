"""`tern ledger`: where every message is, as each group sees it, and that the line adds up."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ternmq.cli.options import URL, Json, Url, use
from ternmq.cli.output import note, plain, say, show_json, show_table
from ternmq.wire.commands import HalfLine, LedgerLine
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


class Found(NamedTuple):
    """All lines there are."""

    lines: list[LedgerLine]
    later: list[DelayLedgerLine]
    halves: list[HalfLine]


async def _ask(mq: "Client", topic: str, group: str) -> Found:
    lines = await mq.admin.ledger(topic, group)
    if group:
        return Found(lines, [], [])
    routes = await mq.admin.routes()
    delays = any(route.kind == "delay" for route in routes)
    later = await mq.admin.delays.ledger(topic) if delays else []
    return Found(lines, later, await mq.admin.half_lines(topic))


def ledger(
    topic: Annotated[str, typer.Argument(help="Only this topic.")] = "",
    group: Annotated[str, typer.Argument(help="Only this group.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Account for every message: one line per lane of each group, states adding up to total.

    A topic that had messages for later has a second kind of line, that of the delay servers. What
    is in transactions that have not ended is in no line yet, and said on stderr.
    """
    found = use(url, lambda mq: _ask(mq, topic, group))
    lines, later = found.lines, found.later
    lines.sort(key=lambda line: (line.topic, line.group, line.lane))
    for half in found.halves:
        note(
            f"{half.topic}: {half.open + half.dropped} half message(s) in transactions that have "
            f"not ended ({half.dropped} given up), in no line yet; 'tern half list' shows them"
        )
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
