"""Why a message failed the last time, as a consumer reports it and the next one reads it.

A report is three texts (type, text, traceback), cut to what the broker keeps; it never raises,
whatever the exception is like. A message carries the report of its last attempt as `LastError`.
"""

from dataclasses import dataclass
from datetime import datetime

from ternmq.client.model.traceback_cache import formatted

TYPE_LETTERS_MAX = 256
TEXT_LETTERS_MAX = 1_024
TRACEBACK_SIZE_MAX = 4_096
ErrorReport = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class LastError:
    """What went wrong the last time this message was tried; the traceback may be empty."""

    type: str
    text: str
    traceback: str
    at: datetime


def writable(reason: object) -> str:
    """Any reason as text that UTF-8 can write: one odd letter must not hold up the acks."""
    try:
        text = str(reason)
    except Exception as error:  # A reason is often an exception, and these may be anything.
        text = f"a {type(reason).__name__} that cannot be shown: {type(error).__name__}"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def report(error: BaseException | None, reason: str) -> ErrorReport | None:
    """The report to the broker; None if there is nothing to report."""
    if error is None:
        return ("", reason[:TEXT_LETTERS_MAX], "") if reason else None
    try:
        trace = formatted(error)
    except Exception as broken:
        trace = f"the traceback cannot be shown: {type(broken).__name__}"
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return name[:TYPE_LETTERS_MAX], writable(error)[:TEXT_LETTERS_MAX], cut(writable(trace))


def cut(trace: str) -> str:
    """The end of a traceback, which says most, within 4 KiB."""
    data = trace.encode()
    if len(data) <= TRACEBACK_SIZE_MAX:
        return trace
    mark = "… "
    return mark + data[len(mark.encode()) - TRACEBACK_SIZE_MAX :].decode("utf-8", "ignore")
