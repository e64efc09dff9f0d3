"""Where jobs are ordered, looked at and stopped: calls over the documents of the registry."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from ternmq.client.client import Client
from ternmq.core.errors import BadRequest, DocumentNotFound, TopicNotFound, VersionMismatch
from ternmq.jobs.job import JOB_KIND, KeptJob, job_bytes, read_job
from ternmq.jobs.job_kinds import WORKS, check_arguments

LISTED_MAX = 1_000
WAIT_S_MAX = 24 * 3600.0
ATTEMPTS_MAX = 10


class JobAdmin:
    """Jobs of one cluster."""

    def __init__(self, mq: Client) -> None:
        self._mq = mq

    async def order(
        self,
        work: str,
        arguments: Mapping[str, Any],
        *,
        by: str = "",
        reason: str = "",
        wait_s: float = 0.0,
        now: datetime | None = None,
    ) -> KeptJob:
        """Write a job down; it begins when a runner sees it, after `wait_s` at the earliest."""
        if work not in WORKS:
            raise BadRequest(f"there is no work {work[:40]!r}; there are: {', '.join(WORKS)}")
        if not 0 <= wait_s <= WAIT_S_MAX:
            raise BadRequest(f"a job waits for 0 to {WAIT_S_MAX:g} s before it begins")
        given = check_arguments(work, arguments)
        if work == "resend":
            with suppress(TopicNotFound):  # May whoever asks handle them? Else it is `Forbidden`.
                await self._mq.admin.expired_dead_letters(given["group"])
        moment = now or datetime.now(UTC)
        now_ms = int(moment.timestamp() * 1000)
        job = KeptJob(
            id=f"{work}-{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
            work=work,
            arguments=given,
            by=by[:200],
            reason=reason[:500],
            created_at_ms=now_ms,
            not_before_ms=now_ms + int(wait_s * 1000),
        )
        await self._mq.admin.documents.put(JOB_KIND, job.id, job_bytes(job), version=0)
        return job

    async def list(self) -> list[KeptJob]:
        """All that are kept, the newest first."""
        found: list[KeptJob] = []
        after = ""
        while len(found) < LISTED_MAX:
            page = await self._mq.admin.documents.page(JOB_KIND, after=after, bodies=True)
            found += [read_job(each.body, each.name) for each in page.documents]
            after = page.following
            if not after:
                break
        return sorted(found, key=lambda job: (-job.created_at_ms, job.id))

    async def show(self, id: str) -> KeptJob:
        """One of them; raises `DocumentNotFound`."""
        try:
            document = await self._mq.admin.documents.get(JOB_KIND, id)
        except DocumentNotFound:
            raise DocumentNotFound(
                f"there is no job {id[:80]!r}; 'tern jobs list' shows them"
            ) from None
        return read_job(document.body, id)

    async def stop(self, id: str) -> KeptJob:
        """Let a job end after the step under way; one that has not begun never does."""
        for _ in range(ATTEMPTS_MAX):
            document = await self._mq.admin.documents.get(JOB_KIND, id)
            job = read_job(document.body, id)
            if job.over or job.stop:
                return job
            wanted = replace(job, stop=True)
            try:
                await self._mq.admin.documents.put(
                    JOB_KIND, id, job_bytes(wanted), version=document.version
                )
            except VersionMismatch:
                continue  # It moves on; once more.
            return wanted
        raise BadRequest(f"job {id} changes all the time; try again")

    async def recall(self, id: str) -> int:
        """Take back what a job sent again and nobody was handed yet; returns how many."""
        job = await self.show(id)
        if job.work != "resend":
            raise BadRequest(f"job {id} is no resend: there is nothing to take back")
        if not job.over:
            raise BadRequest(f"job {id} still runs: stop it first ('tern jobs stop {id}')")
        taken = 0
        for broker_group, ranges in job.at.get("ranges", {}).items():
            chosen = [(int(first), int(end)) for first, end in ranges]
            for topic in job.at.get("topics", []):
                taken += await self._mq.admin.recall_dead_letters(
                    job.arguments["group"], topic, chosen, broker_group
                )
        return taken
