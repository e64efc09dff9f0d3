"""Log events with fields: to the logger `ternmq` of the standard library, or through structlog.

A process that configured structlog gets events its way: our own servers and commands do
(`cli/terminal/logs.py`), applications may. Any other gets records of the logger "ternmq", so the
levels, handlers and filters of Django, pytest, Sentry or Celery hold for them as for every library:
the text is the event with its fields behind it, and the fields alone are `record.ternmq`. Nothing
is configured here, and structlog is not even imported.

A log line that comes three times a second hides the others and fills disks. `LogThrottle` writes
the same text once a minute, for what is tried all the time; `LogBudget` lets some lines of a kind
through in every period and counts the others. Both take the time from their callers.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

SAME_TEXT_S = 60.0
NAME = "ternmq"
EXCEPTION = "exception"
# Fields that are lines of their own: a traceback that was formatted before.
STACK = "stack"
# The frame that a record names: of the caller of `log.info(…)`, not of this module.
CALLER = 3


class Log:
    """A logger that looks at every event whether structlog is configured by now."""

    def __getattr__(self, level: str) -> Callable[..., Any]:
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            method: Callable[..., Any] = getattr(structlog.get_logger(), level)
            return method
        number = (
            logging.ERROR
            if level == EXCEPTION
            else logging.getLevelNamesMapping().get(level.upper())
        )
        if number is None:
            raise AttributeError(level)

        def record(event: str, **fields: Any) -> None:
            _record(number, event, fields, trace=level == EXCEPTION)

        return record


def _record(level: int, event: str, fields: dict[str, Any], *, trace: bool) -> None:
    logger = logging.getLogger(NAME)
    if not logger.isEnabledFor(level):
        return
    exc_info = fields.pop("exc_info", trace)
    stack = fields.pop(STACK, None)
    text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
    if stack is not None:
        text = f"{text}\n{stack}"
    logger.log(level, "%s", text, exc_info=exc_info, extra={NAME: fields}, stacklevel=CALLER)


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
