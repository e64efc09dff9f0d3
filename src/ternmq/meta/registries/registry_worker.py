"""The one thread that a registry is used from.

A registry blocks: it waits for a database or for ZooKeeper. Everything that reads or changes it is
run here, one call after the other, in the order asked. What a call found is applied on the event
loop in the same order, so memory never goes ahead of the registry and never backwards.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from ternmq.core.errors import Closed
from ternmq.core.lifecycle import Background

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
        loop = asyncio.get_running_loop()
        working = loop.run_in_executor(self._executor, work)
        if then is None:
            return working
        future: asyncio.Future[T] = loop.create_future()
        guard = Background("what follows a change of the registry", partial(_fail, future))
        working.add_done_callback(guard.callback(partial(_apply, future, then)))
        return future

    def close(self) -> None:
        """No more calls; those under way are finished."""
        self._closed = True


def _apply(
    future: "asyncio.Future[T]", then: Callable[[T], None], done: "asyncio.Future[T]"
) -> None:
    """Whoever asked hears of it after `then`; a bug there is the answer, and in the log."""
    error = Closed("the directory is closed") if done.cancelled() else done.exception()
    if error is not None:
        _fail(future, error)
        return
    then(done.result())
    if not future.done():
        future.set_result(done.result())


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # Nobody may wait for it any more.
