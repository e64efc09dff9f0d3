"""Where reading begins, as people write it: earliest, latest, a sequence, a time, "10m" (ago)."""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms
from ternmq.wire.messages.groups import Start

StartPoint = Literal["earliest", "latest"] | int | datetime

HELP = "earliest, latest, a sequence, a time (2025-01-31T12:00Z), or how long ago (10m)"
SEQUENCE_MAX = 2**63 - 1
DIGITS_MAX = 100  # With leading zeros; Python itself refuses some thousand.
MOMENT = "a time (2025-01-31T12:00Z), or how long ago (2h)"
_AGO = re.compile(r"(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+", re.IGNORECASE)


def parse_start(text: str, *, now: datetime) -> StartPoint:
    """Read what was typed; a time without a zone is UTC, as every time that is shown."""
    word = text.strip()
    if word in ("earliest", "latest"):
        return word  # type: ignore[return-value]
    if word.isdecimal():
        if len(word) > DIGITS_MAX or int(word) > SEQUENCE_MAX:
            raise BadRequest(f"a sequence is 0 to {SEQUENCE_MAX}, not {word[:40]}")
        return int(word)
    if _AGO.fullmatch(word):
        try:
            return now - timedelta(milliseconds=parse_duration_ms(word))
        except OverflowError:
            raise BadRequest(f"{word[:40]} ago is before the year 1") from None
    try:
        at = datetime.fromisoformat(word)
    except ValueError:
        raise BadRequest(f"{text!r} is not a place to start: write {HELP}") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def parse_moment(flag: str, text: str, *, now: datetime) -> datetime:
    """A start that can only be a moment; `flag` is what people call it."""
    point = parse_start(text, now=now)
    if not isinstance(point, datetime):
        raise BadRequest(f"{flag} is {text!r}; write {MOMENT}")
    return point


def as_start(point: StartPoint) -> Start:
    """A start as it is sent."""
    if isinstance(point, datetime):
        return Start(at="time", value=max(0, int(point.timestamp() * 1000)))
    if isinstance(point, int):
        return Start(at="sequence", value=point)
    return Start(at=point)
