"""Work beside the calls: loops that live as long as a block, callbacks and tasks nobody waits for.

Loops that only look whether there is something to do share one timer, a `Pulse`: a server that has
nothing to do wakes up once for all of them.

A loop that fails cancels the block that owns it. Of callbacks and forgotten tasks an event loop
only logs what they raise, and goes on: a consumer whose callback failed waited for ever with its
messages in flight. Whoever starts such work has one `Background` and hands in what is to happen
then: a consumer raises the error to the application, a producer gives up what it had accepted, a
server answers who asked. The traceback is logged in any case. Cancelling is no error.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger

PULSE_S = 0.05

P = ParamSpec("P")

log = get_logger()


@asynccontextmanager
async def background(**loops: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run named loops while the block runs.

    Leaving the block cancels the loops and waits for them. A loop that fails cancels the block, so
    a broker cannot look alive with a dead part inside.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_run(loop), name=name) for name, loop in loops.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


async def _run(loop: Callable[[], Awaitable[None]]) -> None:
    await loop()


def report_bugs() -> None:
    """What callbacks and forgotten tasks of this loop raise, and nobody guards, goes to our log
    with its traceback: once for the whole process, below everything else."""
    asyncio.get_running_loop().set_exception_handler(_report)


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    bug = context.get("exception")
    where = (
        context.get("handle")
        or context.get("future")
        or context.get("task")
        or context.get("transport")
    )
    log.error("failed by a bug", what=context.get("message", ""), where=repr(where), exc_info=bug)


class Pulse:
    """One timer for many loops; each says what it waits for, as a look that is cheap."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], tuple[float, Callable[[], bool]]] = {}

    async def run(self) -> None:
        """Look for all of them, forever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(PULSE_S)
            now = loop.time()
            for waiting, (at, is_due) in list(self._waiting.items()):
                if now >= at and not waiting.done() and is_due():
                    waiting.set_result(None)

    async def until(self, is_due: Callable[[], bool], *, after_s: float = 0.0) -> None:
        """Wait for it, and at least so long."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting[waiting] = (loop.time() + after_s, is_due)
        try:
            await waiting
        finally:
            del self._waiting[waiting]


class Background:
    """What one part of a client or server has running beside its calls."""

    __slots__ = ("_failed", "_part")

    def __init__(self, part: str, failed: Callable[[TernError], None]) -> None:
        """`part`: what it is, for the log and the error. `failed` must not raise."""
        self._part = part
        self._failed = failed

    def callback(self, function: Callable[P, None]) -> Callable[P, None]:
        """A function wrapped for a timer, a future or the loop: what it raises is told."""

        def called(*args: "P.args", **kwargs: "P.kwargs") -> None:
            try:
                function(*args, **kwargs)
            except Exception as bug:
                self.report(bug)

        return called

    def task(self, work: Coroutine[Any, Any, None], *, name: str) -> "asyncio.Task[None]":
        """Run it; how it ends is told if it ends by an error."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.report(error)

    def report(self, bug: Exception) -> None:
        """Log where it happened and tell the owner."""
        log.error(f"{self._part} failed by a bug", exc_info=bug)  # noqa: G004
        if isinstance(bug, TernError):
            self._failed(bug)
        else:
            self._failed(TernError(f"{self._part} failed inside ternmq, by a bug: {bug!r}"))
