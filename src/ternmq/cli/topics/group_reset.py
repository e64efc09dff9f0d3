"""`tern group reset` and `tern group replay`: messages that a group gets again.

A reset moves the group itself, or brings back only what failed. A replay leaves every group where
it is and copies messages into one group's private lane.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.messages import dead
from ternmq.cli.terminal import starts
from ternmq.cli.terminal.incomplete import BrokerGroup
from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, plain, say, show_json
from ternmq.cli.terminal.progress import progress
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
    place = starts.parse_start(to, now=now)
    where = starts.as_start(place)

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
    if _beyond(place, done, now):
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


def _beyond(place: starts.Place, done: "ResetDone", now: datetime) -> bool:
    """Is there nothing there yet?"""
    if isinstance(place, datetime):
        return place > now
    return isinstance(place, int) and place > done.to_sequence


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
    letters = dead.of_topic(how.url, group, topic) if chosen["dead"] else {}
    text = f"{rows} that wait for a retry and {len(letters)} dead letters"
    result: dict[str, Any] = {"waiting": rows, "dead": len(letters), "failed": []}
    if not how.dry_run:
        confirm(f"Hand out {text} of group {group} on {topic} again?", yes=how.yes)
        if chosen["waiting"]:
            result["waiting"] = use(how.url, lambda mq: mq.admin.retry_group(topic, group))
        if letters:
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


def replay(
    topic: TopicName,
    into: Annotated[str, typer.Option("--into", help="Group of this topic that gets them.")],
    start: Annotated[str, typer.Option("--from", help=starts.HELP)] = "earliest",
    end: Annotated[str, typer.Option("--to", help="The same: where it ends.")] = "latest",
    tag: Annotated[str, typer.Option(help="Only these tags, e.g. 'a || b'.")] = "",
    filter: Annotated[str, typer.Option(help="Only what this condition takes.")] = "",
    rate: Annotated[int, typer.Option(min=0, help="Messages a second; 0: no limit.")] = 0,
    resume: Annotated[str | None, typer.Option(help="Go on with the replay of this name.")] = None,
    broker_group: BrokerGroup = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Copy stored messages to one group alone; every group stays where it is.

    Stopped halfway, it goes on with --resume NAME and copies nothing twice.
    """
    from ternmq.client.admin.replay import Replay, ReplayProgress, new_replay_name, replay_total

    now = datetime.now(UTC)
    wanted = Replay(
        topic=topic,
        into=into,
        start=starts.parse_start(start, now=now),
        end=starts.parse_start(end, now=now),
        tag=tag,
        filter=filter,
        rate=rate,
        name=resume or new_replay_name(),
        dry_run=dry_run,
        broker_group=broker_group,
    )
    latest = ReplayProgress(name=wanted.name)

    def told(progress: ReplayProgress) -> None:
        nonlocal latest
        latest = progress

    async def job(mq: "Client") -> ReplayProgress:
        total = await replay_total(mq.cluster, wanted)
        if not dry_run:
            confirm(f"Replay up to {total} messages of {topic} into group {into}?", yes=yes)
            note(f"replay {wanted.name}; if it stops, go on with --resume {wanted.name}")
        async with progress("replay", total, lambda: latest.looked):
            return await mq.admin.replay(wanted, told)

    done = use(url, job)
    if as_json:
        show_json(
            {
                "replay": done.name,
                "looked": done.looked,
                "copied": done.copied,
                "filtered": done.filtered,
                "unreadable": done.unreadable,
                "dry_run": dry_run,
            }
        )
    else:
        opening = "would copy" if dry_run else "copied"
        lost = f", {done.unreadable} cannot be read any more" if done.unreadable else ""
        say(f"{opening} {done.copied} messages into group {into}, {done.filtered} filtered{lost}")
