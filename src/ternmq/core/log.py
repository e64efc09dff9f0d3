"""Log events with fields, through structlog, and never into a program's results.

An application that configured structlog gets our events its own way. One that did not gets them on
stderr: structlog's own default is stdout, where results go.
"""

import sys
from typing import Any

import structlog


class Log:
    """A logger that looks at every event whether structlog is configured by now."""

    def __getattr__(self, level: str) -> Any:
        if structlog.is_configured():
            return getattr(structlog.get_logger(), level)
        return getattr(structlog.wrap_logger(structlog.PrintLogger(sys.stderr)), level)


def get_logger() -> Any:
    return Log()
