"""`tern leases` and `tern waiting`: who holds messages of a group, and what waits for a retry."""

from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url
from ternmq.cli.terminal.output import note, show_json, show_table, utc
from ternmq.cli.terminal.partial_answers import end_incomplete, use_tolerant
from ternmq.cli.topics.group import GroupName, TopicName

if TYPE_CHECKING:
    from ternmq.wire.inspection.rows import LeaseInfo

Count = Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="At most so many.")]


def leases(
    topic: TopicName, group: GroupName, count: Count = 100, url: Url = URL, as_json: Json = False
) -> None:
    """List who holds messages of a group, since when and until when; the oldest first."""
    found, missing = use_tolerant(url, lambda admin: admin.leases(topic, group, count))
    if as_json:
        show_json(found)
    else:
        show_table(
            ["#rows", "#started", "#first", "#attempt", "held by", "since", "until", "lane"],
            [
                (
                    lease.rows,
                    lease.started,
                    lease.first,
                    lease.attempt,
                    _holder(lease),
                    utc(lease.since_ms) if lease.since_ms else None,
                    utc(lease.until_ms),
                    lease.lane,
                )
                for lease in found
            ],
        )
    end_incomplete(missing)


def _holder(lease: "LeaseInfo") -> str:
    holder = lease.holder
    if lease.vanished:
        return f"{holder.session[:8]} (gone)"
    return f"{holder.app}@{holder.host}:{holder.pid} {holder.session[:8]}"


def waiting(
    topic: TopicName, group: GroupName, count: Count = 20, url: Url = URL, as_json: Json = False
) -> None:
    """List what waits for its next attempt, and count all of it by error."""
    found, missing = use_tolerant(url, lambda admin: admin.waiting(topic, group, count))
    if as_json:
        show_json(
            {
                "total": found.total,
                "scanned": found.scanned,
                "errors": found.errors,
                "rows": found.rows,
            }
        )
        end_incomplete(missing)
        return
    show_table(
        ["#first", "#count", "#attempt", "due", "error"],
        [
            (
                row.first,
                row.end - row.first,
                row.attempt,
                utc(row.due_ms) if row.due_ms >= 0 else "when resumed",
                row.error or None,
            )
            for row in found.rows
        ],
    )
    for each in found.errors:
        note(f"{each.rows} failed of: {each.error or 'not known'}")
    if found.scanned < found.total:
        note(f"of {found.total} that wait {found.scanned} were looked at")
    end_incomplete(missing)
