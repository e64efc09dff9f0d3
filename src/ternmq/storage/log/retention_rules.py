"""When a stored segment may go: by age, by size, by the disk (R16). Pure; acting is the broker's.

Segments go oldest first, one at a time, never the active one. The age of a segment is that of its
last message. Disk marks: above `warn` expired segments go at any hour, above `forced` the oldest go
even if they are young, and above `full` messages are refused (`MessageLog`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

RetentionReason = Literal["age", "size", "disk"]


class Segment(NamedTuple):
    """A sealed segment of the message log that has a consume table."""

    base: int
    end: int
    last_stored_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRules:
    """By age, size, hour and disk space: which segments may be removed."""

    age_ms: int = 72 * 3_600_000
    """0: kept however old."""
    size: int = 0
    """Of the whole message log, in bytes; 0: no limit."""
    hour: int = -1
    """Of the day, UTC: expired segments go only then, or above the warn mark; -1: at any hour."""
    warn_percent: int = 75
    forced_percent: int = 85


class Moment(NamedTuple):
    """What retention rules look at: the time, the log's size, the disk."""

    now_ms: int
    log_size: int
    used_percent: float


def used_percent(free: int, size: int) -> float:
    return 100 * (1 - free / size) if size else 0.0


def reason_to_drop(
    segment: Segment, moment: Moment, rules: RetentionRules
) -> RetentionReason | None:
    """Why the oldest segment has to go now, if it has to."""
    if moment.used_percent >= rules.forced_percent:
        return "disk"
    if rules.size and moment.log_size > rules.size:
        return "size"
    expired = rules.age_ms and segment.last_stored_at_ms < moment.now_ms - rules.age_ms
    hour = moment.now_ms // 3_600_000 % 24
    due = rules.hour < 0 or hour == rules.hour or moment.used_percent >= rules.warn_percent
    return "age" if expired and due else None
