"""Tracebacks of requests that failed by a bug: at most one a second for each place that failed.

A client that knows such a request can send thousands a second, and a log that is full of one
traceback hides everything else and fills the disk. What was left out is counted in the next line of
the same place. Never raises; never tells the peer more than that its request failed.
"""

import time
from collections.abc import Callable
from typing import Any

from ternmq.core.log import get_logger

AGAIN_S = 1.0
PLACES_MAX = 256

log = get_logger()


class BugLog:
    """When each place failed last, and how often since it was written down."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[str, tuple[float, int]] = {}

    def report(self, error: Exception, **fields: Any) -> None:
        """Write the traceback down, unless the same place failed within the last second."""
        place, now = _place(error), self._clock()
        last, left_out = self._places.get(place, (-AGAIN_S, 0))
        if now - last < AGAIN_S:
            self._places[place] = (last, left_out + 1)
            return
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        self._places[place] = (now, 0)
        log.error("request failed by a bug", exc_info=error, left_out=left_out, **fields)


def _place(error: Exception) -> str:
    """The type of the error, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


BUGS = BugLog()
"""One for the process: the bound is on its log."""
