"""One job in the hands of one runner: its document, saved at a known version, and its lease."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from ternmq.client.client import Client
from ternmq.client.documents.leases import DocumentLease
from ternmq.core.clock import Clock
from ternmq.core.errors import Conflict, Unavailable, VersionMismatch
from ternmq.jobs.job import JOB_KIND, KeptJob, job_bytes, read_job

T = TypeVar("T")
NAP_S = 0.5


class JobStopped(Exception):
    """The job was ordered to stop, and is written down so."""


class Beside(Generic[T]):
    """Work that goes on beside the saving of its job."""

    def __init__(self, task: "asyncio.Task[T]") -> None:
        self._task = task

    async def wait(self, seconds: float) -> bool:
        """Is it over, at once or within that time?"""
        done, _ = await asyncio.wait([self._task], timeout=seconds)
        return bool(done)

    def result(self) -> T:
        return self._task.result()

    def cancel(self) -> None:
        self._task.cancel()


class JobRun:
    """What a work is given."""

    def __init__(
        self, mq: Client, job: KeptJob, version: int, *, lease: DocumentLease, clock: Clock
    ) -> None:
        self.mq = mq
        self.job = job
        self.clock = clock
        self._version = version
        self._lease = lease
        self._beside: list[Beside[Any]] = []

    async def save(self, *, keep: float | None = None, **changes: Any) -> None:
        """Write down how far it is; raises `JobStopped`, or `Conflict` if another one runs it."""
        while True:
            if not self._lease.held:
                raise Conflict(f"job {self.job.id} is not ours any more: the lease ran out")
            wanted = replace(self.job, **changes)
            documents = self.mq.admin.documents
            try:
                put = await documents.put(
                    JOB_KIND, wanted.id, job_bytes(wanted), version=self._version, expires=keep
                )
            except VersionMismatch:
                await self._read_again()
                continue
            self.job, self._version = wanted, put.version
            if self.job.stop and not self.job.over:
                raise JobStopped
            return

    async def _read_again(self) -> None:
        """After a save that was overtaken: a person stops the job, or another runner has it."""
        document = await self.mq.admin.documents.get(JOB_KIND, self.job.id)
        there = read_job(document.body, self.job.id)
        if there.runner != self.job.runner or there.over:
            raise Conflict(f"job {self.job.id} is run by {there.runner or 'another one'} now")
        self.job = replace(self.job, stop=there.stop)
        self._version = document.version

    async def rest(self, seconds: float) -> None:
        """Wait; a lease that is lost meanwhile, or a stop, is noticed at the next `save`."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            await asyncio.sleep(min(left, NAP_S))
            if not self._lease.held:
                raise Conflict(f"job {self.job.id} is not ours any more: the lease ran out")

    def beside(self, work: Coroutine[Any, Any, T]) -> "Beside[T]":
        """Work that goes on while the job is saved; it ends with the job."""
        beside = Beside(asyncio.create_task(work, name=f"work of job {self.job.id}"))
        self._beside.append(beside)
        return beside

    def end(self) -> None:
        """Nothing goes on that the job began."""
        for each in self._beside:
            each.cancel()

    async def patiently(self, step: Callable[[], Awaitable[T]]) -> T:
        """A step that may be repeated, again while servers are away and the job is ours."""
        while True:
            try:
                return await step()
            except Unavailable:
                await self.rest(NAP_S)
                await self.save()
