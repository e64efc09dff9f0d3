"""`tern jobs`: long work that survives who began it: resends, replays, drains, delayed messages."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, plain, say, show_facts, show_json, show_table, utc
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.jobs.job import KeptJob

app = typer.Typer(
    help="Jobs: resends, replays, drains and bulk changes that survive who began them.",
    no_args_is_help=True,
)
JobId = Annotated[str, typer.Argument(metavar="JOB", help="As 'tern jobs list' shows it.")]


@app.command("list")
def list_jobs(url: Url = URL, as_json: Json = False) -> None:
    """List jobs, the newest first."""

    async def job(mq: "Client") -> "list[KeptJob]":
        from ternmq.jobs.job_admin import JobAdmin

        return await JobAdmin(mq).list()

    found = use(url, job)
    if as_json:
        show_json([facts(each) for each in found])
        return
    rows = [
        (each.id, each.state, _progress(each), utc(each.created_at_ms), each.result or each.phase)
        for each in found
    ]
    show_table(("job", "state", "#done", "ordered", "what"), rows)


@app.command("show")
def show(job_id: JobId, url: Url = URL, as_json: Json = False) -> None:
    """Show one job: how far it is, or what came of it."""

    async def job(mq: "Client") -> "KeptJob":
        from ternmq.jobs.job_admin import JobAdmin

        return await JobAdmin(mq).show(job_id)

    _tell(use(url, job), as_json=as_json)


@app.command("start")
def start(
    work: Annotated[str, typer.Argument(metavar="WORK", help="resend, replay, drain, delayed.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME=VALUE]...", help="What it is about: group=billing rate=50."),
    ] = None,
    reason: Annotated[str, typer.Option(help="Why; it is kept with the job.")] = "",
    wait: Annotated[str, typer.Option(metavar="DURATION", help="Begin after: 10s.")] = "0s",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Order a job. A console runs it, or 'tern jobs run'."""
    given = dict(_pair(each) for each in arguments or [])
    wait_s = parse_duration_ms(wait) / 1000

    async def job(mq: "Client") -> "KeptJob":
        from ternmq.jobs.job_admin import JobAdmin

        return await JobAdmin(mq).order(work, given, reason=reason, wait_s=wait_s)

    _tell(use(url, job), as_json=as_json)


@app.command("stop")
def stop(job_id: JobId, url: Url = URL, as_json: Json = False) -> None:
    """Let a job end after the step under way; what is done stays done."""

    async def job(mq: "Client") -> "KeptJob":
        from ternmq.jobs.job_admin import JobAdmin

        return await JobAdmin(mq).stop(job_id)

    _tell(use(url, job), as_json=as_json)


@app.command("recall")
def recall(job_id: JobId, url: Url = URL, as_json: Json = False) -> None:
    """Take back what a resend sent again and nobody was handed yet."""

    async def job(mq: "Client") -> int:
        from ternmq.jobs.job_admin import JobAdmin

        return await JobAdmin(mq).recall(job_id)

    taken = use(url, job)
    if as_json:
        show_json({"taken": taken})
    else:
        say(f"{taken} letters are open again")


@app.command("run")
def run(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="This one only; else all there are.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Run jobs here until they have ended; one that another process runs is waited for."""

    async def job(mq: "Client") -> "list[KeptJob]":
        from ternmq.core.clock import SystemClock
        from ternmq.jobs.job_admin import JobAdmin
        from ternmq.jobs.runner import JobRunner

        if job_id is not None:
            await JobAdmin(mq).show(job_id)
        note("running jobs; Ctrl-C leaves them to others")
        await JobRunner(mq, SystemClock()).run_until_done(job_id)
        found = await JobAdmin(mq).list()
        return [each for each in found if job_id in (None, each.id)]

    found = use(url, job, leaves=True)
    if as_json:
        show_json([facts(each) for each in found])
    else:
        for each in found:
            say(f"{each.id}: {each.state}, {each.result}")


def facts(job: "KeptJob") -> dict[str, Any]:
    shown: dict[str, Any] = plain(job)
    shown.pop("at")
    return shown | {"handled": job.handled}


def _tell(job: "KeptJob", *, as_json: bool) -> None:
    if as_json:
        show_json(facts(job))
        return
    counts = ", ".join(f"{count} {name}" for name, count in job.counts.items())
    show_facts(
        {
            "job": job.id,
            "state": "stopping" if job.stop and not job.over else job.state,
            "of": ", ".join(f"{name}={value}" for name, value in job.arguments.items()),
            "done": _progress(job),
            "counts": counts,
            "phase": job.phase,
            "result": job.result,
            "ordered": utc(job.created_at_ms),
            "runner": job.runner,
        }
    )


def _progress(job: "KeptJob") -> str:
    return f"{job.handled} of {job.total}" if job.total else str(job.handled)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise BadRequest(f"{text[:40]!r} is not NAME=VALUE, as in group=billing")
    return name, value
