"""Requests to a delay server besides PUBLISH: change, find and count messages not yet due.

A delayed message arrives as a PUBLISH whose batch has the DUE column; from then on it is known by
its message id (bytes: 16 for our own ids, any length for explicit ones). `due_at_ms` beside an id
is a hint where the row lies; a wrong or missing one costs time and never changes the answer.
"""

from typing import Any, Literal

from ternmq.wire.record import Number, Record

DelayAction = Literal["cancel", "reschedule", "fire"]


DelayResult = Literal["cancelled", "rescheduled", "fired", "already_dispatched", "unknown"]


DelayState = Literal["pending", "dispatching", "unreadable", "dispatched", "cancelled"]


class DelayChange(Record, frozen=True):
    """Do something about one message before it is due."""

    action: DelayAction
    id: bytes
    topic: str = ""
    due_at_ms: Number = 0
    """When the caller thinks it is due; 0 if it has no idea."""
    at_ms: Number = 0
    """For a reschedule: the new time, UTC."""
    after_ms: Number = -1
    """For a reschedule instead of `at_ms`: so long after the server's now; -1 means not given."""


class DelayChanged(Record, frozen=True):
    """What is true now, durably. `due_at_ms` is 0 where the message is unknown."""

    result: DelayResult
    due_at_ms: Number = 0


class DelayFind(Record, frozen=True):
    """Messages not yet dispatched, by due time; empty means any, `to_ms` 0 means no end."""

    topic: str = ""
    id: bytes = b""
    key: str = ""
    from_ms: Number = 0
    to_ms: Number = 0
    after: bytes = b""
    """`next` of the page before."""
    limit: Number = 100
    unreadable: bool = False
    """Only messages whose record cannot be read, and which therefore cannot go out."""
    decided: bool = False
    """By id: also what was dispatched or cancelled, as long as its hour is kept. `from_ms` is when
    the caller thinks that it is due."""


class DelayRow(Record, frozen=True):
    id: bytes
    topic: str
    key: str
    due_at_ms: Number
    accepted_at_ms: Number
    size: Number
    """Bytes of the body."""
    state: str = "pending"
    """A `DelayState`. Of an unreadable message the id and the key may be empty."""


class DelayRows(Record, frozen=True):
    rows: list[DelayRow]
    next: bytes = b""
    """Where to go on; empty at the end."""


class DelayCountQuery(Record, frozen=True):
    topic: str = ""
    from_ms: Number = 0
    to_ms: Number = 0


class DelayCounts(Record, frozen=True):
    """Pending messages per stretch of `hour_ms`, only those that have some, by time."""

    hours: list[tuple[Number, Number]]
    """(start in ms, pending)."""
    hour_ms: Number


class DelayLedgerQuery(Record, frozen=True):
    topic: str = ""


class DelayLedgerLine(Record, frozen=True):
    """What became of every delayed message: accepted = pending + dispatched + cancelled."""

    topic: str
    accepted: Number
    pending: Number
    dispatched: Number
    cancelled: Number


class DelayLedger(Record, frozen=True):
    lines: list[DelayLedgerLine]


class DelayShow(Record, frozen=True):
    """One message that waits, with what is in it."""

    id: bytes
    topic: str = ""
    due_at_ms: Number = 0
    """When the caller thinks it is due; 0 if it has no idea."""


class DelayedContent(Record, frozen=True):
    row: DelayRow
    body: bytes
    """At most the first 1 MiB; `row.size` says how long it is."""
    tag: str | None = None
    order_key: str | None = None
    properties: dict[str, Any] = {}
    app: str = ""
    """Who sent it."""


class DelayContents(Record, frozen=True):
    """None: it is not there, or does not wait any more."""

    messages: list[DelayedContent]
