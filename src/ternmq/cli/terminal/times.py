"""Times as people type them, for what is to happen later and for what is looked for.

A message's own time needs a zone, because guessing it wrong is found out when it is too late. A
time that only chooses what is shown is UTC without one, as every time that is shown.
"""

from datetime import UTC, datetime, timedelta

from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms


def parse_delay(text: str) -> timedelta:
    """`30m`, `1h30m`, `250ms`."""
    try:
        return timedelta(milliseconds=parse_duration_ms(text))
    except OverflowError:
        raise BadRequest(f"{text[:40]!r} is too long a delay") from None


def parse_at(text: str) -> datetime:
    """A moment with its time zone."""
    at = _parse(text)
    if at.tzinfo is None:
        raise BadRequest(
            f"{text!r} has no time zone: write {text}Z for UTC, or for example {text}+01:00"
        )
    return at


def parse_when(text: str | None) -> datetime | None:
    """A moment to look for; without a zone it is UTC."""
    if text is None:
        return None
    at = _parse(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise BadRequest(
            f"{text!r} is not a time; write for example 2026-12-24T18:00:00+01:00"
        ) from None
