"""Single messages as groups see them: their states, the leases they are in, those that wait.

Times are milliseconds since 1970 by the broker's clock. Lists come in pages: `following` is what
the next request says as `after`; empty, or 0, there is no more.
"""

from typing import Literal

from ternmq.wire.record import Number, Record

RowStanding = Literal[
    "unstored",
    "before",
    "ready",
    "in_flight",
    "moving",
    "waiting",
    "stopped",
    "acked",
    "dead",
    "expired",
    "filtered",
    "skipped",
    "settled",
]
"""Not stored (yet) · stored before the group's line begins · can be handed out · with a consumer ·
on its way to the dead letters · for its next attempt · until an operator lets it go on · and how it
was settled; "settled" where nobody remembers how any more."""


class Holder(Record, frozen=True):
    """Who has messages in hand; only the session is known of one whose connection is gone."""

    session: str = ""
    app: str = ""
    host: str = ""
    pid: Number = 0


class MessageStateFind(Record, frozen=True):
    topic: str
    sequences: list[Number]
    group: str = ""
    """Empty: all of the topic."""
    after: str = ""


class MessageState(Record, frozen=True):
    """One message as one group sees it."""

    group: str
    lane: str
    """'topic', or 'private' for a lane that only this group has."""
    sequence: Number
    state: RowStanding
    attempt: Number = 0
    """The attempt that it is in, or that comes next."""
    holder: Holder = Holder()
    since_ms: Number = 0
    """In a lease: since when; 0: not known any more."""
    until_ms: Number = 0
    started: bool = False
    """Its consumer said that it began to handle it."""
    due_ms: Number = 0
    error: str = ""
    """Why the last attempt failed."""
    failed_at_ms: Number = 0
    blocking_key: str = ""
    """Ordered groups: the order key that it waits behind."""
    blocking_sequence: Number = -1
    """The first unsettled message of that key; -1: nothing is before it."""
    slot_held: bool = False
    """Ordered groups: its key moved here, and what is left of it elsewhere comes first."""
    now_ms: Number = 0
    """The broker's time when it said so."""
    broker_group: str = ""
    """Filled in by the client that asked, here and below."""


class MessageStates(Record, frozen=True):
    states: list[MessageState]
    following: str = ""


class LeaseFind(Record, frozen=True):
    topic: str
    group: str
    after: Number = 0
    limit: Number = 100


class LeaseInfo(Record, frozen=True):
    """Messages that one consumer was handed together, as far as they are not settled."""

    id: Number
    lane: str
    holder: Holder
    rows: Number
    started: Number
    first: Number
    """Of the sequences."""
    end: Number
    attempt: Number
    """The highest of them."""
    since_ms: Number
    """0: not known, the broker was started since."""
    until_ms: Number
    vanished: bool
    """Its consumer's connection is gone."""
    broker_group: str = ""


class LeasePage(Record, frozen=True):
    leases: list[LeaseInfo]
    """Those that were handed out first come first."""
    total: Number
    following: Number = 0


class WaitingFind(Record, frozen=True):
    topic: str
    group: str
    after: tuple[Number, Number, Number] = (-1, -1, -1)
    """`following` of the page before."""
    limit: Number = 100
    errors: bool = True
    """Count all that wait by what they failed of, too."""


class WaitingRow(Record, frozen=True):
    """Messages beside each other that wait for the same."""

    lane: str
    first: Number
    end: Number
    due_ms: Number
    """-1: until an operator lets it go on."""
    attempt: Number
    error: str = ""
    failed_at_ms: Number = 0
    broker_group: str = ""


class ErrorCount(Record, frozen=True):
    error: str
    """Empty: not known."""
    rows: Number


class WaitingPage(Record, frozen=True):
    rows: list[WaitingRow]
    """By due time."""
    total: Number
    errors: list[ErrorCount] = []
    """The most frequent first."""
    scanned: Number = 0
    """Messages that were looked at; fewer than all: of the others nothing is said here."""
    following: tuple[Number, Number, Number] = (-1, -1, -1)
    """The same: that was the last page."""
