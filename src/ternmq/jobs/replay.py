"""A replay as a job: its name is fixed when it is ordered, so another runner goes on with it."""

from datetime import UTC, datetime

from ternmq.client.admin.replay import Replay, ReplayProgress, new_replay_name
from ternmq.client.reading.written_start import parse_start
from ternmq.jobs.job_run import JobRun

SAVE_EVERY_S = 1.0


async def run_replay_job(run: JobRun) -> str:
    """Messages are copied once, as brokers remember the name; counts of a runner that died between
    two saves are those of the last one."""
    if "name" not in run.job.at:
        name = run.job.arguments.get("name") or new_replay_name()
        await run.save(at={"name": name}, phase="copying")
    given, before = run.job.arguments, dict(run.job.counts)
    now = datetime.fromtimestamp(run.job.created_at_ms / 1000, UTC)
    wanted = Replay(
        topic=given["topic"],
        into=given["into"],
        start=parse_start(given.get("start", "earliest"), now=now),
        end=parse_start(given.get("end", "latest"), now=now),
        tag=given.get("tag", ""),
        filter=given.get("filter", ""),
        rate=int(given.get("rate", 0)),
        name=run.job.at["name"],
    )
    latest: list[ReplayProgress] = []
    copying = run.beside(run.mq.admin.replay(wanted, latest.append))
    while not await copying.wait(SAVE_EVERY_S):
        if latest:
            await run.save(total=latest[-1].total, counts=_counts(before, latest[-1]))
    done = copying.result()
    await run.save(total=done.total, counts=_counts(before, done))
    return f"{run.job.counts.get('copied', 0):,} messages copied into {wanted.into}"


def _counts(before: dict[str, int], progress: ReplayProgress) -> dict[str, int]:
    found = {
        "copied": before.get("copied", 0) + progress.copied,
        "filtered": before.get("filtered", 0) + progress.filtered,
        "unreadable": before.get("unreadable", 0) + progress.unreadable,
    }
    return {name: count for name, count in found.items() if count}
