"""What people order about jobs: begin one, stop it, take back what it sent. See `action_steps`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ternmq.api.action_steps import ActionDone, Arguments
from ternmq.client.client import Client
from ternmq.client.reading.letters import DeadLetterChoice
from ternmq.client.reading.written_start import parse_start
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.jobs.job import KeptJob
from ternmq.jobs.job_admin import JobAdmin
from ternmq.jobs.job_kinds import check_arguments
from ternmq.jobs.resend import RATE, moment_of

WAIT_S = 10.0
"""For so long after it was ordered a job can be stopped with nothing done."""
PREVIEW_MAX = 10_000
"""Letters that a dry run looks at."""
OF_ORDER = ("wait_s", "reason", "by")
"""About the order, not about the work."""


async def resend_job(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    order: Mapping[str, str] = {name: arguments[name] for name in OF_ORDER if name in arguments}
    given = {name: value for name, value in arguments.items() if name not in OF_ORDER}
    checked = check_arguments("resend", given)
    if dry:
        return await _resend_preview(mq, checked)
    wait_s = _seconds(order.get("wait_s", ""))
    by, reason = order.get("by", ""), order.get("reason", "")
    job = await JobAdmin(mq).order("resend", checked, by=by, reason=reason, wait_s=wait_s)
    return ActionDone(text=f"job {job.id} begins in {wait_s:g} s", facts={"job": job.id})


def _seconds(text: str) -> float:
    if text and not (text.isascii() and text.isdigit() and len(text) < 6):
        raise BadRequest(f"wait_s is {text[:40]!r}; it is a number of seconds")
    return float(text) if text else WAIT_S


async def _resend_preview(mq: Client, given: Mapping[str, Any]) -> ActionDone:
    choice = DeadLetterChoice(
        ids=given.get("ids", ()),
        error=given.get("error", ""),
        topic=given.get("topic", ""),
        since=moment_of(given.get("since")),
        until=moment_of(given.get("until")),
    )
    count, again, more = 0, 0, False
    topics: dict[str, int] = {}
    try:
        async for letter in mq.letters(given["group"]).open(choice):
            if count >= PREVIEW_MAX:
                more = True
                break
            count += 1
            again += bool(letter.notes.get("%resent"))
            topic = str(letter.notes.get("%topic", ""))
            topics[topic] = topics.get(topic, 0) + 1
    except TopicNotFound:
        pass
    rate = int(given.get("rate", RATE))
    at_least = "at least " if more else ""
    text = f"{at_least}{count:,} letters would be sent again to {given['group']}, {rate:,} a second"
    if canary := int(given.get("canary", 0)):
        text += f"; the first {canary:,} alone, until they are settled"
    if percent := int(given.get("stop_percent", 0)):
        text += f"; it stops if more than {percent} % die again"
    if again:
        text += f". {again:,} of them were sent again before and died again"
    facts = {"letters": count, "sent again before": again, "topics": topics, "rate": rate}
    return ActionDone(text=text, facts=facts, done=False)


async def replay_job(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    """Copy messages of a stretch of time into one group alone."""
    order: Mapping[str, str] = {name: arguments[name] for name in OF_ORDER if name in arguments}
    given = {name: value for name, value in arguments.items() if name not in OF_ORDER}
    checked = check_arguments("replay", given)
    now = datetime.now(UTC)
    start = parse_start(checked.get("start", "earliest"), now=now)
    end = parse_start(checked.get("end", "latest"), now=now)
    if dry:
        begins = await mq.admin.seek_all(checked["topic"], start)
        ends = await mq.admin.seek_all(checked["topic"], end)
        rows = sum(max(0, ends[name].sequence - begins[name].sequence) for name in begins)
        chosen = bool(checked.get("filter") or checked.get("tag"))
        what = f"those of {rows:,} messages that pass" if chosen else f"{rows:,} messages"
        rate = f", {checked['rate']:,} a second" if checked.get("rate") else ""
        text = f"{what} would be copied into group {checked['into']} alone{rate}"
        return ActionDone(text=text, facts={"messages": rows}, done=False)
    wait_s = _seconds(order.get("wait_s", ""))
    by, reason = order.get("by", ""), order.get("reason", "")
    job = await JobAdmin(mq).order("replay", checked, by=by, reason=reason, wait_s=wait_s)
    return ActionDone(text=f"job {job.id} begins in {wait_s:g} s", facts={"job": job.id})


async def stop_job(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    desk = JobAdmin(mq)
    job = await desk.show(arguments["job"])
    if job.over:
        return ActionDone(text=f"nothing to do: {job.id} has ended", done=False)
    if not dry:
        await desk.stop(job.id)
    text = f"{job.id} {'would end' if dry else 'ends'} after the step under way; what is done stays"
    return ActionDone(text=text, facts=_counts(job), done=not dry)


async def recall_job(mq: Client, arguments: Arguments, dry: bool) -> ActionDone:
    desk = JobAdmin(mq)
    job = await desk.show(arguments["job"])
    if dry:
        text = (
            f"letters that {job.id} sent again and that no consumer was handed yet become open "
            "letters once more; the others are left alone"
        )
        return ActionDone(text=text, facts=_counts(job), done=False)
    taken = await desk.recall(job.id)
    return ActionDone(text=f"{taken:,} letters are open again", facts={"taken": taken})


def _counts(job: KeptJob) -> dict[str, Any]:
    return {"total": job.total, **job.counts}
