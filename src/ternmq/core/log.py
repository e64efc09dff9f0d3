"""Log events with fields, through structlog, and never into a program's results.

An application that configured structlog gets our events its own way. One that did not gets them on
stderr: structlog's own default is stdout, where results go.

A log line that comes three times a second hides the others and fills disks. `LogThrottle` writes
the same text once a minute, for what is tried all the time; `LogBudget` lets some lines of a kind
through in every period and counts the others. Both take the time from their callers.
"""

import sys
from typing import Any

import structlog

SAME_TEXT_S = 60.0


class Log:
    """A logger that looks at every event whether structlog is configured by now."""

    def __getattr__(self, level: str) -> Any:
        if structlog.is_configured():
            return getattr(structlog.get_logger(), level)
        return getattr(structlog.wrap_logger(structlog.PrintLogger(sys.stderr)), level)


def get_logger() -> Any:
    return Log()


class LogThrottle:
    """What was said last, of each event. The same is said again after a minute; anything else at
    once."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, float]] = {}

    def due(self, event: str, reason: str, now: float) -> bool:
        """Is it to be said now? If so it counts as said."""
        last, at = self._last.get(event, (None, 0.0))
        if reason == last and now - at < SAME_TEXT_S:
            return False
        self._last[event] = (reason, now)
        return True

    def over(self) -> None:
        """The trouble is over: the same trouble is news next time."""
        self._last.clear()


class LogBudget:
    """The first lines of a period are written; what the others would have told is counted."""

    __slots__ = ("_left_out", "_lines", "_lines_max")

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._lines = 0
        self._left_out = 0

    def allows(self, count: int = 1) -> bool:
        """May a line about so many things be written? If not they are counted."""
        if self._lines < self._lines_max:
            self._lines += 1
            return True
        self._left_out += count
        return False

    def left_out(self) -> int:
        """How many things were not written about since this was asked last."""
        count, self._left_out = self._left_out, 0
        return count

    def renew(self) -> None:
        """A new period begins."""
        self._lines = 0
