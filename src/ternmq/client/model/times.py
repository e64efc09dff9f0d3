"""Converts times and numbers of applications within their limits, and shows them in errors.

Times are milliseconds since 1970. What is sent lies between 1970 and the end of the year 9999, the
last that a `datetime` can hold; what is stored may come from another client, so reading clamps.
"""

from datetime import UTC, datetime, timedelta

TIME_MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_TIME_MIN_MS = -62_135_596_800_000  # 0001-01-01
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 80


def time_from_ms(ms: int) -> datetime:
    """An aware datetime; times no `datetime` can hold become the nearest one it can."""
    return _EPOCH + timedelta(milliseconds=min(max(ms, _TIME_MIN_MS), TIME_MAX_MS))


def shown(value: object) -> str:
    """A value for an error message: always printable, never long."""
    try:
        text = repr(value)
    except Exception:  # An int of 5,000 digits, or an object that fails to describe itself.
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"
