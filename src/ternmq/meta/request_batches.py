"""Batches requests: those that come while a transaction runs go together in the next one."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ternmq.core.errors import Closed, TernError
from ternmq.core.lifecycle import Background

TRANSACTION_ROWS_MAX = 5_000
"""Creations per transaction: others (an epoch, a deletion) wait for no more than these."""

PART = "the directory"

K = TypeVar("K")
N = TypeVar("N")
R = TypeVar("R")


class RequestBatches(Generic[K, N, R]):
    """Requests that wait for the next transaction; equal keys share one row and one answer."""

    def __init__(
        self,
        run: Callable[[Sequence[N]], "asyncio.Future[list[R]]"],
        arrived: Callable[[Sequence[R]], None],
    ) -> None:
        self._run = run
        self._arrived = arrived
        self._wanted: dict[K, tuple[N, asyncio.Future[R]]] = {}
        self._busy = False

    def ask(self, key: K, new: N) -> "asyncio.Future[R]":
        waiting = self._wanted.get(key)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._wanted[key] = (new, loop.create_future())
            if not self._busy:
                # Not at once: what else is asked in this turn of the loop comes along.
                self._busy = True
                loop.call_soon(self._next)
        return asyncio.shield(waiting[1])

    def _next(self) -> None:
        keys = list(self._wanted)[:TRANSACTION_ROWS_MAX]
        self._busy = bool(keys)
        if not keys:
            return
        taken = [self._wanted.pop(key) for key in keys]
        futures = [future for _, future in taken]
        guard = Background(PART, lambda error: self._fail(futures, error))
        try:
            done = self._run([new for new, _ in taken])
        except TernError as error:
            self._fail(futures, error)
            return
        except Exception as bug:
            guard.report(bug)
            return
        done.add_done_callback(guard.callback(lambda future: self._finish(futures, future)))

    def _finish(self, futures: "list[asyncio.Future[R]]", done: "asyncio.Future[list[R]]") -> None:
        error = Closed("the directory is closed") if done.cancelled() else done.exception()
        if error is not None:
            self._fail(futures, error)
            return
        rows = done.result()
        self._arrived(rows)
        for future, row in zip(futures, rows, strict=True):
            future.set_result(row)
        self._next()

    def _fail(self, futures: "list[asyncio.Future[R]]", error: BaseException) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(error)
                future.exception()  # The request may be cancelled by now.
        self._next()
