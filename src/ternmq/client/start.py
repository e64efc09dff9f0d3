"""Where reading begins: what applications write, and what the broker is told."""

from datetime import datetime

from ternmq.core.errors import BadRequest
from ternmq.wire.commands import Start

StartLike = str | int | datetime | Start


def make_start(start: StartLike) -> Start:
    """'earliest', 'latest', a sequence number, or an aware datetime (stored at or after)."""
    if isinstance(start, Start):
        return start
    if isinstance(start, datetime):
        return Start(at="time", value=_milliseconds(start))
    if isinstance(start, int) and not isinstance(start, bool) and start >= 0:
        return Start(at="sequence", value=start)
    if start == "earliest":
        return Start(at="earliest")
    if start == "latest":
        return Start(at="latest")
    raise BadRequest(
        f"start is {start!r}; it can be 'earliest', 'latest', a sequence number or an aware "
        "datetime"
    )


def _milliseconds(when: datetime) -> int:
    if when.tzinfo is None:
        raise BadRequest(
            f"{when!r} has no time zone; write for example datetime.now(UTC) or when.astimezone()"
        )
    return max(0, int(when.timestamp() * 1000))
