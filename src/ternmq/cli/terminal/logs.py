"""Logging of this process: structlog events to stderr, coloured on a terminal or as JSON lines.

Configured here and nowhere else, so that the library never decides for an application.
"""

import logging
import sys
from typing import Any

import structlog


def configure(*, level: str = "info", as_json: bool = False) -> None:
    terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=terminal, exception_formatter=structlog.dev.plain_traceback
        )
    )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
