"""Deadlines of answers, looked after by one timer for all of a link.

A timer for each request costs more than the request itself. Answers that are there by the next look
are dropped without a word; one that is overdue gets a `TimeoutError`, at most `SWEEP_S` late. For
deadlines of seconds only. Belongs to one event loop.
"""

import asyncio
from typing import Any

SWEEP_S = 0.25
SWEPT_MIN_S = 1.0
"""Who waits for less than this needs a timer of its own."""


class AnswerDeadlines:
    """Answers that are waited for, each with its time."""

    __slots__ = ("_timer", "_watched")

    def __init__(self) -> None:
        self._watched: list[tuple[asyncio.Future[Any], float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, answer: "asyncio.Future[Any]", until: float) -> None:
        """Give this up at a time of the loop's clock."""
        self._watched.append((answer, until))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        watched = [each for each in self._watched if not each[0].done()]
        for answer, until in watched:
            if until <= now:
                answer.set_exception(TimeoutError())
        self._watched = [each for each in watched if each[1] > now]
        if self._watched:
            self._timer = loop.call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        """Give up nothing more."""
        if self._timer is not None:
            self._timer.cancel()
