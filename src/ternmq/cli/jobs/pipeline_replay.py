"""`tern pipeline replay`: archived messages once more, into a topic or to one group alone."""

from typing import Annotated

import typer

from ternmq.cli.jobs.job_bar import job_bar
from ternmq.cli.jobs.spark_job import Conf, Master, interrupted, job_rate, spark_job
from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm
from ternmq.cli.terminal.output import note, say, show_json, size


def replay(
    archive: Annotated[
        str,
        typer.Option("--from-archive", envvar="TERN_ARCHIVE", help="A folder, or a url."),
    ],
    topic: Annotated[str, typer.Option("--topic", help="The topic they were archived from.")],
    to_topic: Annotated[str, typer.Option("--to-topic", help="They go into this topic.")] = "",
    group: Annotated[
        str, typer.Option("--group", help="They go to this group of the topic, and no other.")
    ] = "",
    where: Annotated[
        str, typer.Option("--where", help="SQL over key, tag, stored_at, properties, body …")
    ] = "",
    rate: Annotated[str, typer.Option("--rate", help="At most so many, e.g. 5000/s.")] = "none",
    name: Annotated[
        str, typer.Option("--name", help="Of this replay; without it, the same call goes on.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    master: Master = None,
    conf: Conf = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Send archived messages once more, with their ids, exactly once.

    Stopped or killed halfway, the same command goes on.
    """
    from ternmq.pipeline.archive.store import ArchiveStore
    from ternmq.pipeline.jobs.replay import Replayer, ReplayJob
    from ternmq.pipeline.jobs.replay_plan import check_choice

    job = ReplayJob(
        url=url,
        archive=archive,
        topic=topic,
        to_topic=to_topic,
        group=group,
        where=where,
        rate=job_rate(rate),
        name=name,
    )
    check_choice(topic, to_topic, group)
    ArchiveStore(archive).check()  # Before Spark takes its seconds to start.
    sent = 0
    with spark_job("replay", master, conf) as spark, interrupted() as stopping:
        replayer = Replayer(spark, job)
        with job_bar(spark, "counting"):
            left = replayer.count(dry_run=dry_run)
        again = " (the rest of it)" if left.begun else ""
        target = f"topic {to_topic}" if to_topic else f"group {group} alone"
        if left.done:
            note(f"replay {left.name} ended before; --name NAME begins another one")
        else:
            note(f"{left.messages:,} messages, {size(left.size)} to {target}{again}")
        if left.messages and not dry_run:
            confirm(f"Send {left.messages} messages to {target}?", yes=yes)
            note(f"replay {left.name}; if it stops, the same command goes on")
        if not dry_run and not left.done:
            with job_bar(spark, "replay", left.messages) as on_progress:
                sent = replayer.run(on_progress, stopping)
    result = {"replay": left.name, "chosen": left.messages, "sent": sent, "dry_run": dry_run}
    if as_json:
        show_json(result)
    else:
        opening = f"would send {left.messages}" if dry_run else f"sent {sent} of {left.messages}"
        say(f"{opening} messages")
