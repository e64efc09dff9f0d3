"""`tern delay`: the server of messages for later, and what waits there.

Messages are chosen by id, by key, by topic, by the time they are due. Every message that was to be
changed gets an honest result; one that could not be changed as asked makes the exit code 1.
"""

import asyncio
import shutil
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.messages.bars import bar_lines
from ternmq.cli.terminal.options import (
    URL,
    AdvertisedHost,
    AlreadyJson,
    ConfigFile,
    Host,
    Insecure,
    Json,
    LogJson,
    MetaUrl,
    MetricsPort,
    NodeSecretFile,
    Url,
    Yes,
    confirm,
    use,
)
from ternmq.cli.terminal.output import note, say, show_json, show_table, utc
from ternmq.cli.terminal.progress import progress
from ternmq.cli.terminal.times import parse_at, parse_delay, parse_when
from ternmq.core.errors import BadRequest
from ternmq.core.ids import explicit_id_text
from ternmq.core.units import DAY_MS
from ternmq.wire.messages.delays import DelayAction, DelayCounts, DelayRow

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.wire.messages.delays import DelayedContent

app = typer.Typer(
    help="Messages for later: the server, and what waits there.", no_args_is_help=True
)
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Message ids.")]
Key = Annotated[str, typer.Option("--key", help="Only messages with this key.")]
Topic = Annotated[str, typer.Option("--topic", help="Only messages of this topic.")]
From = Annotated[str | None, typer.Option("--from", help="Due at this time or later.")]
To = Annotated[str | None, typer.Option("--to", help="Due before this time.")]
Hour = Annotated[str | None, typer.Option("--hour", help="Due in this hour: 2026-12-24T17Z.")]
LINES_MAX = 72
SIDE_BY_SIDE = 64
CHANGED_MAX = 1_000_000
"""Messages changed or found by one command."""


class By(StrEnum):
    """How `count` adds up."""

    HOUR = "hour"
    DAY = "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayChoice:
    """Which messages are meant."""

    ids: tuple[str, ...]
    key: str
    topic: str
    start: datetime | None
    end: datetime | None
    unreadable: bool = False

    @property
    def empty(self) -> bool:
        return not (self.ids or self.key or self.topic or self.start or self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOptions:
    """How chosen messages are changed."""

    dry_run: bool
    yes: bool
    url: str
    as_json: bool


def _choice(
    ids: list[str] | None,
    key: str,
    topic: str,
    since: str | None,
    to: str | None,
    hour: str | None = None,
) -> DelayChoice:
    start, end = parse_when(since), parse_when(to)
    if hour is not None:
        if start is not None or end is not None:
            raise BadRequest("give --hour, or --from and --to, not both")
        start = parse_when(hour)
        assert start is not None
        start = start.replace(minute=0, second=0, microsecond=0)
        end = start + timedelta(hours=1)
    return DelayChoice(ids=tuple(ids or ()), key=key, topic=topic, start=start, end=end)


@app.command()
def serve(
    url: MetaUrl = None,
    name: Annotated[
        str | None, typer.Option(help="Its name; a second one of that name is a replica.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=3, help="Port to listen on (7702).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where it stores (./tern-data).")] = None,
    wal_dir: Annotated[Path | None, typer.Option(help="Where it writes first, if apart.")] = None,
    host: Host = None,
    insecure: Insecure = None,
    advertised_host: AdvertisedHost = None,
    metrics_port: MetricsPort = None,
    node_secret_file: NodeSecretFile = None,
    config: ConfigFile = None,
    log_json: LogJson = None,
) -> None:
    """Run a delay server as a process of its own; --url names the meta server.

    When it is ready, one line `ready NAME ADDRESS` appears on stdout. `tern up` runs a delay server
    by itself; this is for more of them, or for one apart from the broker.
    """
    from ternmq.cli.processes.node import run_delay
    from ternmq.cli.processes.up import read_config

    flags: dict[str, Any] = {
        "url": url,
        "broker_group": name,
        "ports": None if port is None else port - 2,
        "data_dir": data_dir,
        "delay_wal_dir": wal_dir,
        "host": host,
        "insecure": insecure,
        "advertised_host": advertised_host,
        "metrics_port": metrics_port,
        "node_secret_file": node_secret_file,
        "log_json": log_json,
    }
    settings = read_config(config, flags)
    raise typer.Exit(run_delay(settings, settings.url or URL))


@app.command("list")
def list_waiting(
    topic: Topic = "",
    key: Key = "",
    since: From = None,
    to: To = None,
    hour: Hour = None,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="Only those whose record cannot be read.")
    ] = False,
    limit: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 100,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List messages that wait, the next to be due first."""
    choice = replace(_choice(None, key, topic, since, to, hour), unreadable=unreadable)
    _show_rows(use(url, lambda mq: _rows(mq, choice, limit + 1)), limit, as_json=as_json)


@app.command()
def find(
    ids: Ids = None, key: Key = "", topic: Topic = "", url: Url = URL, as_json: Json = False
) -> None:
    """Find messages that wait, by id or by key."""
    if not ids and not key:
        raise BadRequest("find what? give an ID, or --key KEY")
    choice = _choice(ids, key, topic, None, None)
    rows = use(url, lambda mq: _rows(mq, choice, CHANGED_MAX))
    _show_rows(rows, CHANGED_MAX, as_json=as_json)
    if not rows:
        note("no message that waits was found; it may be dispatched, cancelled or never sent")
        raise typer.Exit(1)


@app.command()
def show(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="26 characters, or hex.")],
    url: Url = URL,
    _: AlreadyJson = False,
) -> None:
    """Show one message that waits with everything in it, as JSON."""

    async def job(mq: "Client") -> "list[DelayedContent]":
        return await mq.admin.delays.show(message_id)

    found = use(url, job)
    if not found:
        note(f"no delay server has a message {message_id} that waits")
        raise typer.Exit(1)
    show_json(found)


@app.command()
def count(
    topic: Topic = "",
    since: From = None,
    to: To = None,
    by: Annotated[By | None, typer.Option(help="Add up by hour or by day.")] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Count messages that wait, hour by hour, as a chart."""
    start, end = parse_when(since), parse_when(to)
    counts = use(url, lambda mq: mq.admin.delays.counts(topic, start, end))
    total = sum(pending for _, pending in counts.hours)
    if as_json:
        hours = [{"start": utc(at), "pending": pending} for at, pending in counts.hours]
        show_json(
            {"topic": topic or None, "pending": total, "hour_ms": counts.hour_ms, "hours": hours}
        )
        return
    width = shutil.get_terminal_size().columns
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in bar_lines(chart_rows(counts, by), width=width, plain=plain):
        say(line)
    say(f"{total:,} messages wait" + (f" in {topic}" if topic else ""))


@app.command()
def cancel(
    ids: Ids = None,
    key: Key = "",
    topic: Topic = "",
    since: From = None,
    to: To = None,
    hour: Hour = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Take messages back before they are due."""
    choice = _choice(ids, key, topic, since, to, hour)
    how = DelayOptions(dry_run=dry_run, yes=yes, url=url, as_json=as_json)
    _change("cancel", choice, {}, how)


@app.command()
def reschedule(
    ids: Ids = None,
    key: Key = "",
    topic: Topic = "",
    since: From = None,
    to: To = None,
    hour: Hour = None,
    at: Annotated[str | None, typer.Option(help="New time, with its zone.")] = None,
    delay: Annotated[str | None, typer.Option(help="From now: 30m, 1h30m.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Let messages be due at another time."""
    if (at is None) == (delay is None):
        raise BadRequest("reschedule to when? give --at TIME or --delay DURATION")
    when = {"at": parse_at(at)} if at is not None else {"delay": parse_delay(delay or "")}
    choice = _choice(ids, key, topic, since, to, hour)
    how = DelayOptions(dry_run=dry_run, yes=yes, url=url, as_json=as_json)
    _change("reschedule", choice, when, how)


@app.command()
def fire(
    ids: Ids = None,
    key: Key = "",
    topic: Topic = "",
    since: From = None,
    to: To = None,
    hour: Hour = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Let messages go out now."""
    choice = _choice(ids, key, topic, since, to, hour)
    how = DelayOptions(dry_run=dry_run, yes=yes, url=url, as_json=as_json)
    _change("fire", choice, {}, how)


@app.command()
def forget(
    name: Annotated[str, typer.Argument(help="Name of the delay server.")],
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Forget a delay server that is gone for good, with the messages it may hold."""
    confirm(f"Forget delay server {name}, and whatever still waits there?", yes=yes)
    use(url, lambda mq: mq.admin.delays.forget(name))
    if as_json:
        show_json({"forgotten": name})
    else:
        say(f"delay server {name} is forgotten")


def chart_rows(counts: DelayCounts, by: By | None) -> list[tuple[str, int]]:
    """Labels and values; hours become days when there would be too many lines."""
    if by is None:
        by = By.HOUR if len(counts.hours) <= LINES_MAX else By.DAY
    if by is By.HOUR:
        return [(utc(at)[:16] + "Z", pending) for at, pending in counts.hours]
    days: dict[int, int] = {}
    for at, pending in counts.hours:
        day = at - at % DAY_MS
        days[day] = days.get(day, 0) + pending
    return [(utc(day)[:10], pending) for day, pending in sorted(days.items())]


async def _rows(mq: "Client", choice: DelayChoice, limit: int) -> list[DelayRow]:
    rows: list[DelayRow] = []
    for one in choice.ids or ("",):
        rows += await mq.admin.delays.rows(
            topic=choice.topic,
            id=one,
            key=choice.key,
            start=choice.start,
            end=choice.end,
            limit=limit,
            unreadable=choice.unreadable,
        )
    return rows


def _change(
    action: DelayAction, choice: DelayChoice, when: dict[str, Any], how: DelayOptions
) -> None:
    if choice.empty:
        raise BadRequest(f"{action} what? give an ID, --key, --topic, --hour, or --from and --to")
    if choice.ids and choice != DelayChoice(ids=choice.ids, key="", topic="", start=None, end=None):
        raise BadRequest(
            f"{action} what? give IDs, or choose by --key, --topic and times, not both"
        )
    chosen: dict[str, str | DelayRow] = {one.upper(): one for one in choice.ids}
    if not chosen or how.dry_run:
        rows = use(how.url, lambda mq: _rows(mq, choice, CHANGED_MAX))
        if how.dry_run:
            _show_rows(rows, CHANGED_MAX, as_json=how.as_json)
            return
        chosen = {explicit_id_text(row.id): row for row in rows if row.id}
        if len(chosen) < len(rows):
            note(f"{len(rows) - len(chosen)} more cannot be named: their ids cannot be read")
        if chosen:
            confirm(f"{action.capitalize()} {len(chosen)} messages?", yes=how.yes)
    results = use(how.url, lambda mq: _change_all(mq, action, chosen, when))
    wanted = {"cancel": "cancelled", "reschedule": "rescheduled", "fire": "fired"}[action]
    others = {one: result for one, result in results.items() if result != wanted}
    changed = len(results) - len(others)
    if how.as_json:
        show_json({"chosen": len(results), wanted: changed, "results": results})
    elif len(results) == 1:
        say("".join(f"{one}  {result.replace('_', ' ')}" for one, result in results.items()))
    else:
        for one, result in others.items():
            note(f"{one}  {result.replace('_', ' ')}")
        say(f"{len(results)} chosen, {changed} {wanted}, {len(others)} not")
    if others:
        raise typer.Exit(1)


async def _change_all(
    mq: "Client", action: DelayAction, chosen: dict[str, str | DelayRow], when: dict[str, Any]
) -> dict[str, str]:
    results: dict[str, str] = {}
    delays, ids = mq.admin.delays, list(chosen)
    async with progress(action, len(ids), lambda: len(results)):
        for first in range(0, len(ids), SIDE_BY_SIDE):
            some = ids[first : first + SIDE_BY_SIDE]
            done = await asyncio.gather(
                *(delays.change(action, chosen[one], **when) for one in some)
            )
            results |= {one: str(result) for one, result in zip(some, done, strict=True)}
    return results


def _show_rows(rows: list[DelayRow], limit: int, *, as_json: bool) -> None:
    now = datetime.now(UTC)
    shown = rows[:limit]
    if as_json:
        show_json([_fields(row) for row in shown])
        return
    show_table(
        ["id", "topic", "key", "due", "in", "#size", "state"],
        [
            (
                explicit_id_text(row.id),
                row.topic,
                row.key or None,
                utc(row.due_at_ms),
                ahead(row.due_at_ms / 1000 - now.timestamp()),
                row.size,
                row.state,
            )
            for row in shown
        ],
    )
    if len(rows) > limit:
        note("there are more; --count shows them")


def ahead(seconds: float) -> str:
    """How far away, in the two largest units: `3d 4h`, `12m 5s`, `now`."""
    left = int(seconds)
    if left <= 0:
        return "now"
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2])


def _fields(row: DelayRow) -> dict[str, Any]:
    return {
        "id": explicit_id_text(row.id),
        "topic": row.topic,
        "key": row.key or None,
        "due_at": utc(row.due_at_ms),
        "accepted_at": utc(row.accepted_at_ms),
        "size": row.size,
        "state": row.state,
    }
