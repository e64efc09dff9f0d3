"""Where reading begins: what applications pass, and what is sent to the broker."""

from datetime import datetime

from ternmq.client.model.durations import typed
from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.groups import Start

StartLike = str | int | datetime | Start

SEQUENCE_MAX = 2**63 - 1
PLACES = ("earliest", "latest", "sequence", "time")


def make_start(start: StartLike) -> Start:
    """'earliest', 'latest', a sequence number, or an aware datetime (stored at or after)."""
    if isinstance(start, Start):
        if start.at not in PLACES:
            raise BadRequest(f"at is {shown(start.at)}; it can be {', '.join(PLACES)}")
        value: object = start.value
        if start.at == "time" and isinstance(value, datetime):
            return Start(at="time", value=milliseconds(value))
        _check_number("value", value)
        return start
    if isinstance(start, datetime):
        return Start(at="time", value=milliseconds(start))
    if isinstance(start, int) and not isinstance(start, bool):
        _check_number("start", start)
        return Start(at="sequence", value=start)
    if start == "earliest":
        return Start(at="earliest")
    if start == "latest":
        return Start(at="latest")
    raise BadRequest(
        f"start is {shown(start)}; it can be 'earliest', 'latest', a sequence number or an aware "
        "datetime"
    )


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= SEQUENCE_MAX:
        raise BadRequest(f"{name} is {shown(value)}; a sequence or a time is 0 to 2**63 - 1")


def milliseconds(when: datetime, name: str = "start") -> int:
    """Milliseconds since 1970 of an aware datetime."""
    if not isinstance(when, datetime):
        raise BadRequest(f"{name} is {typed(when)}; it is a datetime with a time zone")
    if when.tzinfo is None:
        raise BadRequest(
            f"{when!r} has no time zone; write for example datetime.now(UTC) or when.astimezone()"
        )
    return max(0, int(when.timestamp() * 1000))
