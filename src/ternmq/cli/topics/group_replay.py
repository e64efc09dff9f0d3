"""`tern group replay`: copies stored messages into one group's private lane.

Every group stays where it is. The copy is made by the brokers and has a name, under which it goes
on after it was stopped.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, say, show_json
from ternmq.cli.terminal.partial_answers import BrokerGroup
from ternmq.cli.terminal.progress import progress
from ternmq.cli.topics.group_reset import DryRun, TopicName
from ternmq.client.reading import written_start as starts

if TYPE_CHECKING:
    from ternmq.client.client import Client


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

    def on_progress(progress: ReplayProgress) -> None:
        nonlocal latest
        latest = progress

    async def job(mq: "Client") -> ReplayProgress:
        total = await replay_total(mq.cluster, wanted)
        if not dry_run:
            confirm(f"Replay up to {total} messages of {topic} into group {into}?", yes=yes)
            note(f"replay {wanted.name}; if it stops, go on with --resume {wanted.name}")
        async with progress("replay", total, lambda: latest.looked):
            return await mq.admin.replay(wanted, on_progress)

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
