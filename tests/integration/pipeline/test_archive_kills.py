"""The archive job is killed again and again: no row is lost, none is there twice (P3)."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.pipeline.test_archive import duck, fill
from tests.integration.processes import COMMAND, Node, clean_environment
from tests.waiting import wait_until

SEED = int(os.environ.get("TERN_TEST_SEED", "17"))
ROWS = 30_000


class Job:
    """One run of the job, and what can be seen of it from outside."""

    def __init__(self, node: Node, target: Path) -> None:
        self._target = target
        self._commits = self._count("_tern/commits/*")
        self.process = subprocess.Popen(
            [
                *COMMAND,
                "pipeline",
                "archive",
                "--to",
                str(target),
                "--url",
                node.url,
                "--master",
                "local[2,4]",
            ],
            start_new_session=True,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _count(self, pattern: str) -> int:
        return len(list(self._target.glob(pattern)))

    def writes(self) -> bool:
        return self._count("_tern/staging/*") > 0

    def committed(self) -> bool:
        return self._count("_tern/commits/*") > self._commits

    def has_workers(self) -> bool:
        return bool(self.workers())

    def workers(self) -> list[int]:
        """The Python processes below its JVM that have no children: those that do tasks."""
        children: dict[int, list[int]] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parent = int(path.read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(path.parent.name))
        below, waiting = list[int](), [self.process.pid]
        while waiting:
            found = children.get(waiting.pop(), [])
            below += found
            waiting += found
        return [pid for pid in below if pid not in children and "pyspark" in _command(pid)]

    def wait_for(self, event: Callable[[], bool]) -> None:
        def happened() -> bool:
            return event() or self.process.poll() is not None

        wait_until(happened, event.__name__, seconds=300)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


@pytest.mark.long
@pytest.mark.timeout(1_500)
def test_kills_at_random_moments_neither_lose_nor_double_a_row(node: Node, tmp_path: Path) -> None:
    """kill -9 of the whole job, or of a single Python worker, a random moment after an event."""
    chance = random.Random(SEED)
    target, total, jobs, killed = tmp_path / "archive", 0, list[Job](), 0
    try:
        for what in ("job", "worker", "job", "worker", "job", "nothing"):
            fill(node, "orders", total, total + ROWS)
            total += ROWS
            job = Job(node, target)
            jobs.append(job)
            if what == "nothing":
                break
            events = [job.has_workers, job.writes, job.committed]
            job.wait_for(events[0] if what == "worker" else chance.choice(events))
            time.sleep(chance.random() / 2)
            if what == "job":
                killed += job.process.poll() is None
                job.kill()
                continue
            for pid in chance.sample(found, 1) if (found := job.workers()) else ():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            job.process.wait(300)  # Its task is tried again; if it was no task, the job ends.
        assert jobs[-1].process.wait(300) == 0
    finally:
        for job in jobs:
            job.kill()

    assert killed >= 3, f"with seed {SEED} nothing was hit"
    expected = [(total, total)]
    assert duck(target, "select count(*), count(distinct id) from ARCHIVE") == expected
