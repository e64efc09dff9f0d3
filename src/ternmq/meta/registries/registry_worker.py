"""The one thread that a registry is used from.

A registry blocks: it waits for a database or for ZooKeeper. Everything that reads or changes it is
run here, one call after the other, in the order asked. What a call found is applied on the event
loop in the same order, so memory never goes ahead of the registry and never backwards.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ternmq.core.errors import Closed

T = TypeVar("T")


class RegistryWorker:
    """Runs calls in the thread of `executor`, which must have only one."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        self._closed = False

    def run(
        self, work: Callable[[], T], then: Callable[[T], None] | None = None
    ) -> "asyncio.Future[T]":
        """Run `work` in the thread; `then` gets the result on the loop, in order."""
        if self._closed:
            raise Closed("the directory is closed")
        future = asyncio.get_running_loop().run_in_executor(self._executor, work)
        if then is not None:
            future.add_done_callback(lambda done: _apply(done, then))
        return future

    def close(self) -> None:
        """No more calls; those under way are finished."""
        self._closed = True


def _apply(done: "asyncio.Future[T]", then: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        then(done.result())
