"""Many delayed messages cancelled, moved or sent now as a job: page by page, told apart by result.

A page is written down after it was changed; a runner that goes on does the last one again, which
says the same of what was cancelled or moved before.
"""

from collections.abc import Sequence
from typing import Any

from ternmq.core.errors import BadRequest
from ternmq.jobs.job_run import JobRun
from ternmq.jobs.resend import counted, moment_of

PAGE = 200
ACTIONS = ("cancel", "reschedule", "fire")


async def run_delayed(run: JobRun) -> str:
    given = run.job.arguments
    action: Any = given["action"]
    if action not in ACTIONS:
        raise BadRequest(f"action is {action[:40]!r}; it can be {', '.join(ACTIONS)}")
    at = moment_of(given.get("at"))
    if action == "reschedule" and at is None:
        raise BadRequest("reschedule needs at: 2026-01-31T12:00:00Z")
    ids = given.get("ids", [])
    if ids:
        await run.save(total=len(ids), phase="changing")
    more = True
    while more:
        rows, where = await run.patiently(lambda: _page(run, ids))
        if rows:
            done = await run.mq.admin.delays.change_many(action, rows, at=at)
            await run.save(at=where, counts=counted(run.job.counts, dict(done.counts)))
        else:
            await run.save(at=where)
        more = not where.get("over")
    return ", ".join(f"{count:,} {name}" for name, count in run.job.counts.items()) or "nothing"


async def _page(run: JobRun, ids: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    if ids:
        first = int(run.job.at.get("done", 0))
        end = first + PAGE
        return list(ids[first:end]), {"done": end, "over": end >= len(ids)}
    given = run.job.arguments
    page = await run.mq.admin.delays.page(
        topic=given.get("topic", ""),
        key=given.get("key", ""),
        start=moment_of(given.get("from")),
        end=moment_of(given.get("to")),
        limit=PAGE,
        after=run.job.at.get("after", ""),
    )
    return list(page.rows), {"after": page.following, "over": not page.following}
