"""`tern ledger`: where every message is, as each group sees it, and that the line adds up."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, plain, say, show_json, show_table
from ternmq.cli.terminal.partial_answers import end_incomplete
from ternmq.client.admin.merge_answers import merged_lines
from ternmq.wire.messages.delays import DelayLedgerLine
from ternmq.wire.messages.groups import HalfLine, LedgerLine

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


class LedgerAnswers(NamedTuple):
    """The ledger lines of all servers that answered."""

    lines: list[LedgerLine]
    later: list[DelayLedgerLine]
    halves: list[HalfLine]
    missing: dict[str, str]
    """Broker groups whose lines are not here."""


async def _ask(mq: "Client", topic: str, group: str) -> LedgerAnswers:
    admin = mq.admin.tolerant()
    lines = await admin.ledger(topic, group)
    if group:
        return LedgerAnswers(lines, [], [], admin.missing)
    routes = await admin.routes()
    delays = any(route.kind == "delay" for route in routes)
    later = await admin.delays.ledger(topic) if delays else []
    return LedgerAnswers(lines, later, await admin.half_lines(topic), admin.missing)


def ledger(
    topic: Annotated[str, typer.Argument(help="Only this topic.")] = "",
    group: Annotated[str, typer.Argument(help="Only this group.")] = "",
    by_broker_group: Annotated[
        bool, typer.Option("--by-broker-group", help="A line for each broker group, not their sum.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Account for every message: one line per lane of each group, states adding up to total.

    Lines of several broker groups are added up. A topic that had messages for later has a second
    kind of line, that of the delay servers. What is in transactions that have not ended is in no
    line yet, and said on stderr.
    """
    found = use(url, lambda mq: _ask(mq, topic, group))
    each, later = found.lines, found.later
    each.sort(key=lambda line: (line.topic, line.group, line.lane, line.broker_group))
    lines = each if by_broker_group else merged_lines(each)
    for half in found.halves:
        note(
            f"{half.topic}: {half.open + half.dropped} half message(s) in transactions that have "
            f"not ended ({half.dropped} given up), in no line yet; 'tern half list' shows them"
        )
    if as_json:
        show_json(
            [plain(line) | {"sum": total(line)} | _parts(line, each) for line in lines]
            + [plain(line) | {"lane": "delay", "sum": delay_total(line)} for line in later]
        )
    else:
        columns = ["topic", "group", "lane", "broker group", "#total", "="]
        if not by_broker_group:
            columns.remove("broker group")
        show_table(
            [*columns, *[f"#{state.replace('_', ' ')}" for state in STATES], "balanced"],
            [
                (
                    line.topic,
                    line.group,
                    line.lane,
                    *([line.broker_group] if by_broker_group else []),
                    line.total,
                    "=",
                    *[getattr(line, state) for state in STATES],
                    "yes" if total(line) == line.total else f"NO, sum is {total(line)}",
                )
                for line in lines
            ],
        )
        _show_delays(later)
    broken = sum(total(line) != line.total for line in each)
    broken += sum(delay_total(line) != line.accepted for line in later)
    if broken:
        count = len(each) + len(later)
        note(f"error: {broken} of {count} lines do not add up; this is a bug, report it")
        raise typer.Exit(1)
    end_incomplete(found.missing)


def _parts(line: LedgerLine, each: list[LedgerLine]) -> dict[str, object]:
    """The lines of the broker groups behind a line that was added up."""
    if line.broker_group:
        return {}
    same = (line.topic, line.group, line.lane)
    return {"broker_groups": [one for one in each if (one.topic, one.group, one.lane) == same]}


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
