"""Durations as applications write them: a number of seconds or a `timedelta`, everywhere the same.

A refusal names the option, what was given and its type, and what to write. Pure.
"""

import math
from datetime import timedelta

from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest, TernError

Duration = float | timedelta
"""Seconds, or a timedelta."""

_DAY_S = 24 * 3600.0


def seconds_of(
    name: str,
    value: object,
    low: float,
    high: float,
    error: type[TernError] = BadRequest,
) -> float:
    """The duration in seconds, from `low` to `high`; raises `error` with what to write instead."""
    seconds: object = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise error(f"{name} is {typed(value)}; it is a number of seconds, or a timedelta")
    if not low <= seconds <= high:  # Not a number is refused here too.
        raise error(
            f"{name} is {shown(value)}; it can be {_text(low)} to {_text(high)}, as a number of "
            "seconds or a timedelta"
        )
    return float(seconds)


def maybe_seconds_of(name: str, value: object, low: float, high: float) -> float | None:
    """The duration in seconds, as `seconds_of`; None stays None."""
    return None if value is None else seconds_of(name, value, low, high)


def typed(value: object) -> str:
    """A value with its type, unless one sees that anyway: for where the type is what is wrong."""
    plain = value is None or type(value) in (bool, int, float, str, bytes, list, tuple, dict, set)
    return shown(value) if plain else f"{shown(value)} ({type(value).__name__})"


def _text(seconds: float) -> str:
    if math.isinf(seconds):
        return "any"
    days = seconds / _DAY_S
    return f"{days:g} days" if days >= 2 and days == int(days) else f"{seconds:g}"
