"""Picks up jobs and runs them: one lease each, so that of several consoles one runs each job.

Every few seconds the jobs that have not ended are looked at; one whose lease is free is taken. The
lease is renewed while the work goes on, and ends with its holder: another runner goes on then, from
what was saved. A job whose lease was lost is left alone at once. Never ends by an error.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable
from contextlib import suppress

from msgspec.structs import replace

from ternmq.client.client import Client
from ternmq.client.documents.leases import DocumentLease
from ternmq.core.clock import Clock
from ternmq.core.errors import Conflict, DocumentNotFound, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.jobs.job import JOB_KIND, KEPT_S, LEASE_KIND, KeptJob, job_bytes, read_job
from ternmq.jobs.job_admin import JobAdmin
from ternmq.jobs.job_kinds import WORKS
from ternmq.jobs.job_run import JobRun, JobStopped
from ternmq.jobs.resend import JobHalted

LOOK_EVERY_S = 2.0
IDLE_EVERY_S = 5.0
LEASE_S = 15.0
RENEW_S = 3.0
AT_ONCE_MAX = 4

log = get_logger()


class JobRunner:
    """One of those that run jobs."""

    def __init__(self, mq: Client, clock: Clock, *, lease_s: float = LEASE_S) -> None:
        self._mq = mq
        self._clock = clock
        self._lease_s = lease_s
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._running: dict[str, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """A job was ordered here: look at once."""
        self._woken.set()

    async def run(self) -> None:
        """Look and run, for ever."""
        try:
            while True:
                try:
                    busy = await self.look()
                except TernError as error:
                    log.debug("jobs are not looked at", reason=error.message)
                    busy = False
                self._woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S if busy else IDLE_EVERY_S):
                        await self._woken.wait()
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def look(self) -> bool:
        """Begin what nobody runs; is there anything to do?"""
        now_ms = self._clock.now_ms()
        open_ = [job for job in await JobAdmin(self._mq).list() if not job.over]
        for job in reversed(open_):
            if job.id in self._running or len(self._running) >= AT_ONCE_MAX:
                continue
            if job.not_before_ms > now_ms and not job.stop:
                continue
            await self._begin(job.id)
        return bool(open_)

    async def run_until_done(self, id: str | None = None) -> None:
        """Run what there is to run, or that one job, until it has ended."""
        while True:
            await self.look()
            if self._running:
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                continue
            left = [job for job in await JobAdmin(self._mq).list() if not job.over]
            if not [job for job in left if id in (None, job.id)]:
                return
            await asyncio.sleep(0.5)  # Another runner has it, or it is not time yet.

    async def _begin(self, id: str) -> None:
        lease = DocumentLease(
            self._mq.admin.documents, LEASE_KIND, id, holder=self.name, seconds=self._lease_s
        )
        if await lease.take():
            task = asyncio.create_task(self._run(id, lease), name=f"job {id}")
            self._running[id] = task
            task.add_done_callback(lambda _: self._running.pop(id, None))

    async def _run(self, id: str, lease: DocumentLease) -> None:
        renewing = asyncio.create_task(self._renew(lease), name=f"lease of job {id}")
        try:
            await self._work(id, lease)
        except DocumentNotFound:
            pass  # It was deleted.
        except (Conflict, Unavailable) as error:
            log.warning("a job is left to others", job=id, reason=error.message)
        except TernError as error:
            log.error("a job could not be written down", job=id, reason=error.message)
        except Exception as bug:
            log.error("a job failed by a bug", job=id, exc_info=bug)
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
            await lease.let_go()

    async def _renew(self, lease: DocumentLease) -> None:
        while True:
            await asyncio.sleep(min(RENEW_S, self._lease_s / 4))
            with suppress(TernError):
                if not await lease.take():
                    return

    async def _work(self, id: str, lease: DocumentLease) -> None:
        document = await self._mq.admin.documents.get(JOB_KIND, id)
        job = read_job(document.body, id)
        if job.over:
            return
        # Taken over by its name at this version: whoever ran it before cannot save any more.
        began = job.began_at_ms or self._clock.now_ms()
        taken = replace(job, runner=self.name, state="running", began_at_ms=began)
        put = await self._mq.admin.documents.put(
            JOB_KIND, id, job_bytes(taken), version=document.version
        )
        run = JobRun(self._mq, taken, put.version, lease=lease, clock=self._clock)
        if taken.stop:
            await self._end(run, "stopped", _stopped(taken))
            return
        try:
            await self._ended(run, WORKS[taken.work](run))
        finally:
            run.end()

    async def _ended(self, run: JobRun, work: Awaitable[str]) -> None:
        try:
            result = await work
        except JobStopped:
            await self._end(run, "stopped", _stopped(run.job))
        except JobHalted as halted:
            await self._end(run, "stopped", str(halted))
        except (Conflict, Unavailable):
            raise
        except TernError as error:
            await self._end(run, "failed", error.message)
        except asyncio.CancelledError:
            raise
        except Exception as bug:
            log.error("a job failed by a bug", job=run.job.id, exc_info=bug)
            await self._end(run, "failed", "a bug; the log of the console says more")
        else:
            await self._end(run, "done", result)

    async def _end(self, run: JobRun, state: str, result: str) -> None:
        await run.save(
            state=state, result=result, phase="", ended_at_ms=self._clock.now_ms(), keep=KEPT_S
        )
        log.info("a job has ended", job=run.job.id, state=state, result=result)


def _stopped(job: KeptJob) -> str:
    did = ", ".join(f"{count:,} {name}" for name, count in job.counts.items())
    return f"stopped by a person: {did or 'nothing was done'}"
