"""`tern pipeline`: the jobs that run on Spark, and finding messages in the archive they make.

Every job runs on this machine (`local[*]`) unless `--master` says otherwise. Spark is imported only
by the jobs that use it; `find` answers without starting it.
"""

import os
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ternmq.cli.jobs.job_bar import job_bar
from ternmq.cli.jobs.pipeline_replay import replay
from ternmq.cli.jobs.spark_job import Conf, Master, interrupted, job_rate, spark_job
from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm
from ternmq.cli.terminal.output import (
    flush,
    note,
    preview,
    say,
    show_facts,
    show_json,
    show_table,
    size,
    utc,
)
from ternmq.client.reading.written_start import parse_moment
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms
from ternmq.security.sealing.master_keys import VARIABLE, find_master_keys

app = typer.Typer(
    help="Spark jobs: archive, trace, replay, dead letters; and finding messages in the archive.",
    no_args_is_help=True,
)

Archive = Annotated[
    str,
    typer.Option(
        "--archive", envvar="TERN_ARCHIVE", help="The archive: a folder, or a url such as s3://…"
    ),
]


app.command("replay")(replay)


@app.command("warm-up")
def warm_up(as_json: Json = False) -> None:
    """Keep Spark's classes on disk (160 MB), so that local jobs start sooner."""
    from ternmq.cli.terminal.logs import configure
    from ternmq.pipeline.spark import class_archive
    from ternmq.pipeline.spark.session import spark_session

    configure(level="warning")
    made = class_archive.make(lambda conf: spark_session("warm-up", master="local[2]", conf=conf))
    if as_json:
        show_json({"classes": str(made)})
    else:
        say(str(made))


Format = Annotated[
    str, typer.Option("--format", help="parquet, or delta: a Delta log beside the files.")
]
Decrypt = Annotated[
    bool, typer.Option("--decrypt", help="Write bodies of encrypted topics plain, by TERN_KEYS.")
]


@app.command("archive")
def archive(
    to: Annotated[str, typer.Option("--to", help="A folder, or a url such as s3://bucket/path.")],
    topics: Annotated[
        str, typer.Option("--topics", help="Comma list; without it, all topics, also later ones.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Go on as messages come, or stop at the end.")
    ] = False,
    deliveries: Annotated[
        bool, typer.Option("--deliveries/--no-deliveries", help="Archive delivery records too.")
    ] = True,
    form: Format = "parquet",
    fail_on_data_loss: Annotated[
        bool, typer.Option("--fail-on-data-loss", help="Stop where messages were already removed.")
    ] = False,
    decrypt: Decrypt = False,
    master: Master = None,
    conf: Conf = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Write every stored message and every delivery record to Parquet, exactly once."""
    from ternmq.pipeline.archive.job import ArchiveJob, Archiver, ArchiveRound, prepared

    if form not in ("parquet", "delta"):
        raise BadRequest(f"--format is parquet or delta, not {form!r}")
    job = ArchiveJob(
        url=url,
        target=to,
        deliveries=deliveries,
        fail_on_data_loss=fail_on_data_loss,
        topics=_names(topics),
        delta=form == "delta",
        keys=_keys() if decrypt else "",
    )
    prepared(job)  # Before Spark takes its seconds to start.
    done = {"rounds": 0, "messages": 0, "deliveries": 0, "files": 0, "unreadable": 0}
    with (
        spark_job("archive", master, conf) as spark,
        interrupted() as stopping,
        ExitStack() as stack,
    ):
        archiver = Archiver(spark, job)
        bar = job_bar(spark, "archive", None if follow else archiver.waiting())
        shown = stack.enter_context(bar)

        def on_round(last: ArchiveRound) -> None:
            done["rounds"] += 1
            done["messages"] += last.messages
            done["deliveries"] += last.delivery_rows
            done["files"] += last.files
            done["unreadable"] += last.unreadable
            shown(done["messages"])
            rate = int(last.messages / max(last.seconds, 0.001))
            note(
                f"archived {done['messages']:,} messages, {done['deliveries']:,} delivery records "
                f"in {done['files']:,} files ({rate:,} messages/s)"
            )

        if follow:
            note("following; Ctrl-C stops")
            archiver.run_forever(on_round, stopping)
        else:
            archiver.run_once(on_round)
    if as_json:
        show_json({"archive": to, **done})
    else:
        say(f"{done['messages']} messages and {done['deliveries']} delivery records archived")
        if done["unreadable"]:
            say(f"{done['unreadable']} messages are marked %unreadable: part of them is damaged")


@app.command("compact")
def compact(
    archive: Archive,
    keep: Annotated[
        str | None, typer.Option("--keep", help="Remove days that are older, e.g. 90d.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Join the files of each day that has ended, and let old days go."""
    from ternmq.pipeline.archive import compaction
    from ternmq.pipeline.archive.store import ArchiveStore

    ArchiveStore(archive).check()
    dropped = 0
    if keep is not None:
        keep_ms = parse_duration_ms(keep)
        first = compaction.first_date_kept(keep_ms, int(time.time() * 1000))
        dropped = compaction.drop_old(archive, first)
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    with spark_job("compact", master, conf) as spark, job_bar(spark, "compact"):
        before, after = compaction.compact(
            spark, archive, today, lambda done, total: note(f"{done} of {total} days compacted")
        )
    result = {"files_before": before, "files_after": after, "files_dropped": dropped}
    if as_json:
        show_json(result)
    else:
        say(f"{before} files became {after}; {dropped} old ones removed")


@app.command("repair")
def repair(
    archive: Archive,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    as_json: Json = False,
) -> None:
    """Mend an archive of release 0.1, which holds addresses of delayed messages as bytes."""
    from ternmq.pipeline.archive.repair import repair as mend

    found = mend(archive, note, dry_run=dry_run)
    if as_json:
        show_json({"archive": archive, "files": found, "mended": not dry_run})
    elif dry_run:
        say(f"{len(found)} files hold addresses as bytes")
    else:
        say(f"{len(found)} files mended")


@app.command("find")
def find(
    archive: Archive,
    message_id: Annotated[str, typer.Option("--id", help="Message id.")] = "",
    key: Annotated[str, typer.Option("--key", help="Message key.")] = "",
    topic: Annotated[str, typer.Option("--topic", help="Topic.")] = "",
    since: Annotated[str | None, typer.Option("--from", help="Time, or how long ago.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Time, or how long ago.")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 100,
    as_json: Json = False,
) -> None:
    """Find messages in an archive, and what became of them; does not start Spark."""
    from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms

    wanted = SearchTerms(
        id=message_id.upper() if len(message_id) == 26 else message_id,
        key=key,
        topic=topic,
        from_ms=_time_ms("--from", since, 0),
        to_ms=_time_ms("--to", until, 2**62),
        limit=count,
    )
    search = ArchiveSearch(archive)
    found = search.messages(wanted)
    if as_json:
        show_json([_fields(row) | {"timeline": search.timeline(row)} for row in found])
    elif message_id and found:
        for row in found:
            _show_one(row, search.timeline(row))
    elif found:
        show_table(
            ("id", "topic", "#sequence", "stored", "key", "tag", "body"),
            [
                (
                    row["id"],
                    row["topic"],
                    row["sequence"],
                    utc(row["stored_at"]),
                    row["key"],
                    row["tag"],
                    preview(row["body"]),
                )
                for row in found
            ],
        )
    if not found:
        note("nothing found")
        raise typer.Exit(1)


@app.command("trace")
def trace(
    archive: Annotated[
        str, typer.Option("--archive", help="Look at an archive instead of the cluster.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for Parquet tables and report.html.")
    ] = None,
    topics: Annotated[str, typer.Option("--topics", help="Comma list; without it, all.")] = "",
    since: Annotated[str | None, typer.Option("--from", help="Time, or how long ago.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Time, or how long ago.")] = None,
    older: Annotated[
        str, typer.Option("--older-than", help="Audit only what was stored before, e.g. 1h.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as messages come, a line for each minute.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", help="With --follow: where to remember.")
    ] = None,
    master: Master = None,
    conf: Conf = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Latency, throughput, backlog, and what was stored and never acked."""
    from ternmq.pipeline.archive.store import ArchiveStore
    from ternmq.pipeline.cluster import cluster
    from ternmq.pipeline.jobs import trace as tracing

    job = tracing.TraceJob(
        url=url,
        archive=archive,
        topics=_names(topics),
        from_ms=_time_ms("--from", since, 0),
        to_ms=_time_ms("--to", until, 2**62),
        older_than_s=parse_duration_ms(older) // 1000 if older else 0,
    )
    if out is not None:
        _make_folder(out)
    if archive:  # Before Spark takes its seconds to start.
        ArchiveStore(archive).check()
    else:
        cluster(url).check_topics(job.topics)
    if follow:
        if archive or checkpoint is None:
            raise BadRequest("--follow looks at the cluster and needs --checkpoint FOLDER")
        _make_folder(checkpoint)
        _follow_trace(url, checkpoint, out, (master, conf), as_json=as_json)
        return
    with spark_job("trace", master, conf) as spark, job_bar(spark, "trace"):
        tables = tracing.trace(spark, job)
        if out is not None:
            page = tracing.write(spark, tables, out, archive or url)
            note(f"report: {page}")
    if as_json:
        say(tracing.as_json(tables))
        return
    show_table(
        ("topic", "group", "#messages", "#acked", "#again", "#never acked", "#p50 ms", "#p99 ms"),
        _summary(tables),
    )


@app.command("dead-letters")
def dead_letters(
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Only this group; may be repeated.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", help="SQL over error_type, error, cause, topic, died_at …")
    ] = "",
    redrive: Annotated[bool, typer.Option("--redrive", help="Send the chosen ones again.")] = False,
    rate: Annotated[str, typer.Option("--rate", help="At most so many, e.g. 500/s.")] = "none",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
    master: Master = None,
    conf: Conf = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """What died of what, by cause; and sending it again, to the groups it died in."""
    from ternmq.pipeline.cluster import cluster
    from ternmq.pipeline.jobs import dead_letters as letters

    per_second = job_rate(rate)
    choice = letters.LetterChoice(groups=tuple(group or ()), where=where)
    cluster(url)  # Is it there? Before Spark takes its seconds to start.
    with spark_job("dead-letters", master, conf) as spark:
        with job_bar(spark, "dead letters"):
            rows = letters.letters(spark, url, choice)
            causes = [] if rows is None else letters.grouped(rows).toArrow().to_pylist()
        result: dict[str, Any] = {"causes": causes}
        if redrive:
            total = sum(cause["letters"] for cause in causes)
            result |= {"chosen": total, "resent": 0, "failed": []}
            if not dry_run and rows is not None and total:
                confirm(f"Send {total} letters again?", yes=yes)
                with interrupted() as stopping, job_bar(spark, "redrive", total) as shown:
                    result["resent"], result["failed"] = letters.redrive(
                        rows,
                        url,
                        rate=per_second,
                        on_progress=lambda a, _: shown(a),
                        stopping=stopping,
                    )
    if as_json:
        show_json(result)
        return
    names = ("topic", "group", "error_type", "cause", "letters", "last", "resent_before")
    titles = ("topic", "group", "error", "cause", "#letters", "last", "#resent before")
    show_table(titles, [[cause[name] for name in names] for cause in causes])
    if "resent" in result:
        say(f"{result['chosen']} chosen, {result['resent']} sent again")
        for line in result["failed"]:
            say(f"failed: {line}")


def _follow_trace(
    url: str,
    checkpoint: Path,
    out: Path | None,
    session: tuple[str | None, list[str] | None],
    *,
    as_json: bool,
) -> None:
    from ternmq.pipeline.jobs.live_trace import follow

    def on_rows(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if as_json:
                show_json(row, indent=None)
            else:
                say(
                    f"{row['minute']:%H:%M}  {row['topic']}  {row['group']}  {row['acked']} acked  "
                    f"p50 {row['p50_ms']:.1f} ms  p99 {row['p99_ms']:.1f} ms"
                )
        flush()

    with spark_job("trace", *session) as spark, interrupted() as stopping:
        query = follow(spark, url, checkpoint, on_rows=on_rows, out=out)
        note("following; Ctrl-C stops")
        while not stopping() and not query.awaitTermination(1):
            pass
        query.stop()


def _summary(tables: dict[str, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    owed = {(row["topic"], row["group"]): row["never_acked"] for row in tables["audit"]}
    known = {(row["topic"], row["group"]): row for row in tables["latency"]}
    rows: list[tuple[Any, ...]] = []
    for place, missing in owed.items():
        row = known.get(place, {})
        counted = [row.get(name, 0) for name in ("messages", "acked", "again")]
        spent = [row.get(f"total_{share}_ms") for share in ("p50", "p99")]
        shown = [None if each is None else f"{each:.1f}" for each in spent]
        rows.append((*place, *counted, missing, *shown))
    return rows


def _make_folder(path: Path) -> None:
    """Before Spark takes its seconds to start, and would say it at length."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"cannot write to {path}: {error.strerror}") from error


def _keys() -> str:
    """Where the master keys are, for --decrypt."""
    named = os.environ.get(VARIABLE, "")
    if not named:
        raise BadRequest(f"--decrypt needs master keys: export {VARIABLE}=NAME=file:PATH")
    find_master_keys(named, {})
    return named


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _show_one(row: dict[str, Any], timeline: list[dict[str, Any]]) -> None:
    shown = _fields(row)
    shown["body"] = f"{preview(row['body'])} ({size(row['size'])})"
    show_facts({name: value for name, value in shown.items() if value not in (None, {})})
    say("")
    steps = [
        ("sent", row["born_at"], row["app"], None, None),
        ("stored", row["stored_at"], row["broker_group"], None, None),
        *(
            (e["event"], e["at"], e["group"], e["attempt"], (e["text"] or "").partition("\n")[0])
            for e in timeline
        ),
    ]
    show_table(("step", "at", "by", "#attempt", "text"), steps)


def _fields(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "stored_at": utc(row["stored_at"]), "born_at": utc(row["born_at"])}


def _time_ms(flag: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    return int(parse_moment(flag, text, now=datetime.now(UTC)).timestamp() * 1000)
