"""Callbacks and tasks that nobody waits for: an error that nobody thought of reaches their owner.

Event loops log what a callback or a forgotten task raises, and go on: a consumer whose callback
failed waited for ever with its messages in flight. Whoever starts such work has one `Background`
and hands in what is to happen: a consumer raises the error to the application, a producer gives up
what it had accepted, a server answers who asked, or ends the part. The traceback is logged in any
case. Errors of the tree (`TernError`) that get here were expected by nobody either. Cancelling is
no error.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger

P = ParamSpec("P")

log = get_logger()


class Background:
    """What one part of a client or server has running beside its calls."""

    __slots__ = ("_failed", "_part")

    def __init__(self, part: str, failed: Callable[[TernError], None]) -> None:
        """`part`: what it is, for the log and the error. `failed` must not raise."""
        self._part = part
        self._failed = failed

    def callback(self, function: Callable[P, None]) -> Callable[P, None]:
        """The same function, for a timer, a future or the loop: what it raises is told."""

        def called(*args: P.args, **kwargs: P.kwargs) -> None:
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
