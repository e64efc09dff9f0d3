"""What jobs can do: one function each, which goes on where another runner left off.

A work gets a `JobRun`: the job as it is, the client, and `save`, which writes down how far it is
and raises `JobStopped` when it shall stop, or `Conflict` when somebody else runs it. It saves
before every step what the step will do, so a runner that goes on knows what may have happened.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ternmq.core.errors import BadRequest
from ternmq.jobs.delayed import run_delayed
from ternmq.jobs.drain import run_drain
from ternmq.jobs.job_run import JobRun
from ternmq.jobs.replay import run_replay_job
from ternmq.jobs.resend import run_resend

JobWork = Callable[[JobRun], Awaitable[str]]
"""Returns what came of it, in one sentence."""

WORKS: dict[str, JobWork] = {
    "resend": run_resend,
    "replay": run_replay_job,
    "drain": run_drain,
    "delayed": run_delayed,
}
NEEDS: dict[str, dict[str, type]] = {
    "resend": {"group": str},
    "replay": {"topic": str, "into": str},
    "drain": {"broker_group": str},
    "delayed": {"action": str},
}
MAY: dict[str, dict[str, type]] = {
    "resend": {
        "ids": list,
        "error": str,
        "topic": str,
        "since": str,
        "until": str,
        "rate": int,
        "canary": int,
        "canary_wait_s": int,
        "stop_percent": int,
    },
    "replay": {"start": str, "end": str, "tag": str, "filter": str, "rate": int, "name": str},
    "drain": {"kind": str},
    "delayed": {"ids": list, "topic": str, "key": str, "from": str, "to": str, "at": str},
}
TEXT_MAX = 2_000
IDS_MAX = 2_000


def check_arguments(work: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a job is told, checked; raises `BadRequest`. Numbers may come as texts, ids too."""
    known = NEEDS[work] | MAY[work]
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise BadRequest(f"{work} has no {name[:40]!r}; it has: {', '.join(known)}")
        if value in ("", None):
            continue
        taken[name] = _typed(name, value, known[name])
    for name in NEEDS[work]:
        if not taken.get(name):
            raise BadRequest(f"{work} needs {name}")
    return taken


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is list:
        ids = value.replace(",", " ").split() if isinstance(value, str) else value
        fits = isinstance(ids, list) and len(ids) <= IDS_MAX
        if not fits or not all(isinstance(each, str) and len(each) < 100 for each in ids):
            raise BadRequest(f"{name} is a list of up to {IDS_MAX} ids")
        return ids
    if kind is int:
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise BadRequest(f"{name} is {text[:40]!r}; it is a number, 0 or more")
        return int(text)
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise BadRequest(f"{name} is a text of at most {TEXT_MAX} characters")
    return value
