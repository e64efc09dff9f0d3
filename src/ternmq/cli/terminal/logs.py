"""Logging of this process: structlog events to stderr, coloured on a terminal or as JSON lines.

Configured here and nowhere else, so that the library never decides for an application. What peers
said of themselves is in events: on a console it is escaped, JSON does so by itself.
"""

import logging
import sys
from typing import Any

import structlog

from ternmq.cli.terminal.printable import printable

TRACES = ("exception", "stack")
LINES = "\n"


def configure(*, level: str = "info", as_json: bool = False) -> None:
    terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=terminal)
    )
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    processors.append(structlog.processors.format_exc_info)
    if not as_json:
        processors.append(_escape_texts)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def _escape_texts(logger: Any, method: str, event: Any) -> Any:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value, keep=LINES if name in TRACES else "")
    return event
