"""`tern group reset`: moves a group back or forward, or brings back only what failed.

Every broker group is asked what would happen before any of them is moved. `tern group replay`
leaves the group where it is instead.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.messages import dead
from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, plain, say, show_json
from ternmq.cli.terminal.partial_answers import BrokerGroup
from ternmq.client.reading import written_start as starts
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.admin.merge_answers import ResetDone
    from ternmq.client.client import Client

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")]
RESEND_RATE = 1_000


def reset(
    topic: TopicName,
    group: GroupName,
    to: Annotated[str | None, typer.Option("--to", help=starts.HELP)] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed: --waiting and --dead.")
    ] = False,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only what waits for a retry: at once, attempt 1.")
    ] = False,
    dead_letters: Annotated[
        bool, typer.Option("--dead", help="Only dead letters of this topic: sent again.")
    ] = False,
    broker_group: BrokerGroup = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Move a group back (messages come again) or forward (messages are skipped).

    With --failed, --waiting or --dead the group stays and only what failed comes again.
    """
    if (to is not None) == (failed or waiting or dead_letters):
        raise BadRequest("say either --to PLACE, or --failed, --waiting or --dead")
    if to is None:
        chosen = {"waiting": failed or waiting, "dead": failed or dead_letters}
        how = dead.DeadOptions(rate=RESEND_RATE, dry_run=dry_run, yes=yes, url=url, as_json=as_json)
        _bring_back(topic, group, chosen, how)
        return
    now = datetime.now(UTC)
    point = starts.parse_start(to, now=now)
    where = starts.as_start(point)

    async def job(mq: "Client") -> "ResetDone":
        """All broker groups must answer the question before any of them is moved."""
        reset = mq.admin.reset_group
        preview = await reset(topic, group, where, dry_run=True, broker_group=broker_group)
        if dry_run:
            return preview
        for line in _consequences(preview, "this will"):
            note(line)
        confirm(f"Reset group {group} on {topic}?", yes=yes)
        return await reset(topic, group, where, broker_group=broker_group)

    done = use(url, job)
    if _beyond(point, done, now):
        note(f"{to} is beyond the last message: that means the end, {done.to_sequence}")
    if as_json:
        show_json(
            {
                "from_sequence": done.from_sequence,
                "to_sequence": done.to_sequence,
                "again": done.again,
                "skipped": done.skipped,
                "dry_run": dry_run,
                "broker_groups": [
                    {"broker_group": name} | plain(one) for name, one in sorted(done.each.items())
                ],
            }
        )
    else:
        for line in _consequences(done, "would" if dry_run else "done:"):
            say(line)


def _beyond(point: starts.StartPoint, done: "ResetDone", now: datetime) -> bool:
    """Is there nothing there yet?"""
    if isinstance(point, datetime):
        return point > now
    return isinstance(point, int) and point > done.to_sequence


def _consequences(done: "ResetDone", opening: str) -> list[str]:
    """A line for each broker group; their names only where there are several."""
    return [
        f"{opening} move from sequence {one.from_sequence} to {one.to_sequence}: "
        f"{one.again} handed out (again), {one.skipped} skipped"
        + (f" (broker group {name})" if len(done.each) > 1 else "")
        for name, one in sorted(done.each.items())
    ]


def _bring_back(topic: str, group: str, chosen: dict[str, bool], how: dead.DeadOptions) -> None:
    """What failed, by choice."""
    rows = 0
    if chosen["waiting"]:
        rows = use(how.url, lambda mq: mq.admin.retry_group(topic, group, dry_run=True))
    letters = dead.of_topic(how.url, group, topic) if chosen["dead"] else None
    count = len(letters.ids) if letters is not None else 0
    text = f"{rows} that wait for a retry and {count} dead letters"
    result: dict[str, Any] = {"waiting": rows, "dead": count, "failed": []}
    if not how.dry_run:
        confirm(f"Hand out {text} of group {group} on {topic} again?", yes=how.yes)
        if chosen["waiting"]:
            result["waiting"] = use(how.url, lambda mq: mq.admin.retry_group(topic, group))
        if letters is not None and count:
            done = dead.resend_these(how, group, letters)
            result |= {"dead": done["handled"], "failed": done["failed"]}
    if how.as_json:
        show_json({**result, "dry_run": how.dry_run})
    else:
        for line in result["failed"]:
            note(f"failed: {line}")
        opening = "would hand out again" if how.dry_run else "handed out again"
        say(f"{opening}: {result['waiting']} that waited, {result['dead']} dead letters")
    if result["failed"]:
        raise typer.Exit(1)
