"""The trace of one message: what the pull log says of it, event by event.

The log is long, so it is gone through in parts: `following` is where the next request goes on, and
equal to `end` when all of it was seen.
"""

from ternmq.wire.inspection.rows import Holder
from ternmq.wire.record import Number, Record


class TraceFind(Record, frozen=True):
    topic: str
    sequence: Number
    position: Number = -1
    """In the pull log; -1: where the records of `since_ms` begin, or those that are kept."""
    since_ms: Number = 0
    """When the message was stored: nothing before can be about it."""
    size_max: Number = 4 * 1024 * 1024
    """Bytes of the log to look through for one answer."""


class TraceEvent(Record, frozen=True):
    """One thing that happened to a message in a group."""

    at_ms: Number
    kind: str
    """As the pull log calls it, in small letters: handed_out, acked, retry, dead …"""
    group: str
    """Its name, or `#ID` of one that is deleted."""
    lane: str = "topic"
    attempt: Number = 0
    lease: Number = 0
    holder: Holder = Holder()
    due_ms: Number = 0
    """Of a retry: when it may be handed out again."""
    error: str = ""
    broker_group: str = ""


class TracePage(Record, frozen=True):
    events: list[TraceEvent]
    following: Number
    end: Number
    kept_since_ms: Number
    """What happened before is not kept; 0: everything is."""
