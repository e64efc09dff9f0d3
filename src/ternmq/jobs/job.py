"""A job as it is kept: one document with what is to be done, how far it is, and what came of it.

Values and their JSON; no clock and no cluster here. A job is written by whoever runs it and by
whoever stops it, always at a known version, so neither overwrites the other. `at` is where it is,
in words of its own kind of work: everything a runner needs to go on that did not begin it. Pure.
"""

from typing import Any, Literal

import msgspec

from ternmq.core.errors import BadRequest

JOB_KIND = "job"
"""Of the document."""
LEASE_KIND = "job-run"
"""Of the document that says who runs it."""
KEPT_S = 30 * 24 * 3600.0
"""A job that has ended is shown for so long."""

JobState = Literal["waiting", "running", "done", "failed", "stopped"]
ENDED: frozenset[str] = frozenset({"done", "failed", "stopped"})


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    id: str
    work: str
    """What is done: resend, replay, drain, delayed."""
    arguments: dict[str, Any] = {}
    by: str = ""
    """Who ordered it."""
    reason: str = ""
    created_at_ms: int = 0
    not_before_ms: int = 0
    """Nothing happens before; until then stopping it undoes it."""
    state: JobState = "waiting"
    stop: bool = False
    """It was told to stop; whoever runs it does so after the step under way."""
    runner: str = ""
    """Who runs it, or did last."""
    began_at_ms: int = 0
    ended_at_ms: int = 0
    total: int = 0
    """Messages that it is about; 0: not known."""
    counts: dict[str, int] = {}
    """How many came to which end."""
    phase: str = ""
    """What it does at the moment."""
    result: str = ""
    """In one sentence, when it has ended."""
    at: dict[str, Any] = {}

    @property
    def over(self) -> bool:
        return self.state in ENDED

    @property
    def handled(self) -> int:
        return sum(self.counts.values())

    @property
    def share(self) -> float:
        """Of the work that is done, 0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, self.handled / self.total) if self.total else 0.0


def job_bytes(job: KeptJob) -> bytes:
    return msgspec.json.encode(job)


def read_job(body: bytes, name: str) -> KeptJob:
    try:
        return msgspec.json.decode(body, type=KeptJob)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"document {JOB_KIND}/{name} is not a job: {error}") from None
