"""A worker thread that runs one job after the other for the event loop that started it.

`start_worker` asks the running loop first: a loop that brings `start_worker` itself (the seeded
loops of tests/simulation, which have no threads) does the jobs its own way; every other loop gets
a thread. So whoever writes files from a worker runs unchanged in a simulation. A job that raises
ends the thread: jobs catch what they expect and tell the loop by `call_soon_threadsafe`.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

Job = Callable[[], Any]


class Worker(Protocol):
    """Where the jobs go."""

    def put(self, job: Job, /) -> None:
        """Do it after all jobs that were put before; never blocks."""

    async def close(self) -> None:
        """Wait until every job is done; takes no more."""


class ThreadWorker:
    """A thread of its own; a daemon, so that a stuck disk does not keep a process alive."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self.put: Callable[[Job], None] = self._jobs.put  # Once for every round: no frame of ours.

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def start_worker(name: str) -> Worker:
    """A worker for the running loop."""
    start: Callable[[str], Worker] = getattr(
        asyncio.get_running_loop(), "start_worker", ThreadWorker
    )
    return start(name)


def has_threads() -> bool:
    """False on a loop that does everything by itself, as simulated ones do."""
    return not hasattr(asyncio.get_running_loop(), "start_worker")
