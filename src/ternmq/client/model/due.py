"""When a message is due: what callers pass as `delay=` and `at=`, checked, in milliseconds.

A delay counts from the moment in which the delay server gets the message, by its clock; a time is a
time. Both are rounded up, so that nothing comes early. How far ahead is allowed is the server's
setting (`delay_max_days`), which refuses what is over it. Pure.
"""

import math
from datetime import UTC, datetime, timedelta

from ternmq.batch.encoder import Due
from ternmq.batch.layout import DUE_MAX_MS
from ternmq.client.model.durations import typed
from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def make_due(delay: object, at: object) -> Due | None:
    """None if neither is given; raises `BadRequest` that says what to write instead."""
    if delay is not None and at is not None:
        raise BadRequest("a message has delay= (from now) or at= (a time), not both")
    if delay is not None:
        return Due(delay_ms(delay), relative=True)
    if at is not None:
        return Due(time_ms(at), relative=False)
    return None


def due_when_sent(delay: object, at: object) -> Due | None:
    """Likewise, for sending: without any delay a message goes straight to its broker.

    A time that is over is not: whether it is, the clock of the delay server says.
    """
    due = make_due(delay, at)
    return None if due is not None and due.relative and not due.ms else due


def delay_ms(delay: object) -> int:
    """Seconds or a timedelta as milliseconds, rounded up."""
    if isinstance(delay, timedelta):
        ms = delay // _MILLISECOND + bool(delay % _MILLISECOND)
    elif isinstance(delay, int) and not isinstance(delay, bool):
        ms = delay * 1000
    elif isinstance(delay, float) and math.isfinite(delay):
        ms = math.ceil(delay * 1000) if delay < DUE_MAX_MS else DUE_MAX_MS + 1
    else:
        raise BadRequest(f"delay is {typed(delay)}; it is a number of seconds, or a timedelta")
    if ms < 0:
        raise BadRequest(f"delay is {shown(delay)}; it cannot be below 0: leave it out for now")
    if ms > DUE_MAX_MS:
        raise BadRequest(f"delay is {shown(delay)}; that ends after the year 9999")
    return ms


def time_ms(at: object) -> int:
    """An aware datetime as milliseconds since 1970, rounded up; before that is long past."""
    if not isinstance(at, datetime):
        raise BadRequest(f"at is {typed(at)}; it is a datetime with a time zone")
    if at.tzinfo is None or at.utcoffset() is None:
        raise BadRequest(
            f"at is {shown(at)}, which has no time zone: write datetime.now(UTC) + ..., or "
            "at.astimezone() if you mean this machine's"
        )
    return min(max(0, -((_EPOCH - at) // _MILLISECOND)), DUE_MAX_MS)
