"""Checks settings that applications pass: a mistake is refused by name before anything is sent.

Whole numbers may be written as the command line takes them: a rate as "10/s" or "10MB/s", a size as
"64KiB", a time (`…_ms`) as "3d" or a `timedelta`. A name that only the command line has is answered
with the one that is meant. Pure.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from ternmq.client.model.request_check import refusal, sendable
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms, parse_rate, parse_size, parse_size_rate
from ternmq.wire.record import Record

R = TypeVar("R", bound=Record)

COMMAND_LINE = {
    "alarm": "backlog_alarm",
    "attempts": "attempts_max",
    "ordered_attempts": "ordered_attempts_max",
    "max_in_flight": "in_flight_max",
    "max_in_flight_each": "consumer_in_flight_max",
    "dead_keep": "dead_letter_keep_ms",
    "keep": "keep_ms",
}
"""What the command line calls some settings."""
_WRITTEN: dict[str, Callable[[str], int]] = {
    "rate": parse_rate,
    "consume_rate": parse_rate,
    "bytes_rate": parse_size_rate,
    "consume_bytes_rate": parse_size_rate,
    "body_size_max": parse_size,
}


def change_of(kind: type[R], changes: dict[str, Any], **names: str) -> R:
    """A record that changes some settings of what `names` says."""
    known = [name for name in kind.__struct_fields__ if name not in names]
    made = dict(names)
    for name, value in changes.items():
        meant = COMMAND_LINE.get(name)
        if name not in known and meant in known:
            raise BadRequest(f"there is no setting {name!r}: it is {meant!r} in Python")
        if name not in known:
            raise BadRequest(f"there is no setting {name!r}; there are {', '.join(known)}")
        made[name] = _number(kind, name, value)
    return sendable(kind(**made))


def checked(settings: R) -> R:
    """Settings that came whole."""
    return sendable(settings)


def _number(kind: type[Record], name: str, value: Any) -> Any:
    """What people write, as the number that is sent; other values as they are."""
    if name.endswith("_ms") and isinstance(value, timedelta):
        return int(value.total_seconds() * 1000)
    if not isinstance(value, str):
        return value
    parse = parse_duration_ms if name.endswith("_ms") else _WRITTEN.get(name)
    if parse is None:
        return value
    try:
        return parse(value)
    except BadRequest as error:
        raise BadRequest(f"{refusal(kind, name, value).message}, or {error.message}") from None
