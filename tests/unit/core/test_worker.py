"""A worker does jobs in order, on a thread of its own or as the loop says."""

import asyncio
import threading
from functools import partial
from typing import cast

from ternmq.core.worker import Job, start_worker


async def test_jobs_run_in_order_on_one_other_thread_and_closing_waits_for_them() -> None:
    worker = start_worker("tern-test")
    done: list[tuple[int, str]] = []

    def job(number: int) -> None:
        done.append((number, threading.current_thread().name))

    for number in range(100):
        worker.put(partial(job, number))
    await worker.close()

    assert done == [(number, "tern-test") for number in range(100)]


class Inline:
    def __init__(self, name: str) -> None:
        self.name = name

    def put(self, job: Job) -> None:
        job()

    async def close(self) -> None:
        """Everything is done."""


class ThreadlessLoop(asyncio.SelectorEventLoop):
    def start_worker(self, name: str) -> Inline:
        return Inline(name)


def test_a_loop_that_brings_workers_is_asked_for_them() -> None:
    async def start() -> Inline:
        return cast(Inline, start_worker("tern-test"))

    with asyncio.Runner(loop_factory=ThreadlessLoop) as runner:
        assert runner.run(start()).name == "tern-test"
