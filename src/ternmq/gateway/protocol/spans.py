"""Durations and timestamps of the protocol, as milliseconds and back."""

from typing import Any

SECONDS_MAX = 315_576_000_000
"""Ten thousand years, the limit of the protocol's own types."""


def span_ms(value: Any) -> int:
    """Milliseconds of a Duration or a Timestamp; kept within their limits."""
    seconds = max(-SECONDS_MAX, min(SECONDS_MAX, value.seconds))
    return int(seconds * 1000 + value.nanos // 1_000_000)


def put_ms(target: Any, ms: int) -> None:
    """Write milliseconds into a Duration or a Timestamp."""
    target.seconds, rest = divmod(ms, 1000)
    target.nanos = rest * 1_000_000
