"""`/jobs`: long work that survives this process; ordered with 202, looked at, stopped."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from starlette.responses import Response

from ternmq.api.answers import json_answer, page, rfc3339
from ternmq.api.cursors import names_cursor, read_names
from ternmq.api.service import service_of
from ternmq.jobs.job import KeptJob
from ternmq.jobs.job_admin import JobAdmin

router = APIRouter(tags=["jobs"])
Limit = Annotated[int, Query(ge=1, le=1_000)]


@router.get("/jobs", summary="List jobs, the newest first")
async def list_jobs(request: Request, after: str = "", limit: Limit = 100) -> Response:
    found = await JobAdmin(service_of(request).mq).list()
    begin = read_names(after)
    ids = [job.id for job in found]
    first = ids.index(begin) + 1 if begin in ids else 0
    shown = found[first : first + limit]
    following = names_cursor(shown[-1].id) if first + limit < len(found) else ""
    return json_answer(page([_fields(job) for job in shown], following))


@router.post("/jobs", summary="Order a job: resend, replay, drain or delayed", status_code=202)
async def order_job(
    request: Request,
    work: Annotated[str, Body()],
    arguments: Annotated[dict[str, Any] | None, Body()] = None,
    reason: Annotated[str, Body()] = "",
    wait_s: Annotated[float, Body(ge=0, le=86_400)] = 0.0,
) -> Response:
    desk = JobAdmin(service_of(request).mq)
    job = await desk.order(work, arguments or {}, reason=reason, wait_s=wait_s)
    return json_answer(_fields(job), 202, headers={"Location": f"/api/v1/jobs/{job.id}"})


@router.get("/jobs/{job}", summary="One job: its progress, or what came of it")
async def show_job(request: Request, job: str) -> Response:
    return json_answer(_fields(await JobAdmin(service_of(request).mq).show(job)))


@router.post("/jobs/{job}/stop", summary="Let a job end after the step under way")
async def stop_job(request: Request, job: str) -> Response:
    return json_answer(_fields(await JobAdmin(service_of(request).mq).stop(job)), 202)


@router.post("/jobs/{job}/recall", summary="Take back what a resend sent and nobody was handed")
async def recall_job(request: Request, job: str) -> Response:
    taken = await JobAdmin(service_of(request).mq).recall(job)
    return json_answer({"taken": taken})


def _fields(job: KeptJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "work": job.work,
        "arguments": job.arguments,
        "state": job.state,
        "stopping": job.stop and not job.over,
        "phase": job.phase,
        "total": job.total,
        "counts": job.counts,
        "share": round(job.share, 4),
        "result": job.result,
        "by": job.by,
        "reason": job.reason,
        "runner": job.runner,
        "created_at": rfc3339(job.created_at_ms),
        "began_at": rfc3339(job.began_at_ms) if job.began_at_ms else None,
        "ended_at": rfc3339(job.ended_at_ms) if job.ended_at_ms else None,
    }
