"""Draining a broker group as a job: ordered once, then watched until nothing is left."""

from typing import Any

from ternmq.jobs.job_run import JobRun

LOOK_EVERY_S = 1.0


async def run_drain(run: JobRun) -> str:
    """Stopping the job does not undo the draining; `tern broker drain --undo` does."""
    group, kind = run.job.arguments["broker_group"], _kind(run)
    progress = await run.patiently(lambda: run.mq.admin.drain(group, False, kind))
    total = max(run.job.total, progress.left)
    while progress.left or progress.missing:
        left = {"left": progress.left}
        phase = f"{progress.left:,} messages are left"
        await run.save(at=left, total=total, counts={"gone": total - progress.left}, phase=phase)
        await run.rest(LOOK_EVERY_S)
        progress = await run.patiently(lambda: run.mq.admin.drain_progress(group, kind))
        total = max(total, progress.left)
    await run.save(total=total, counts={"gone": total}, phase="")
    return f"{group} is empty and can be stopped; {progress.dead_letters:,} dead letters stay there"


def _kind(run: JobRun) -> Any:
    return run.job.arguments.get("kind") or "realtime"
