"""Requests of a consumer and their answers: join, pull, ack, renew, leave."""

import struct
from typing import Literal

from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.topics import Topic
from ternmq.wire.record import Number, Record

DELIVERED = struct.Struct("<IIQ")  # envelope count, left out (PULL), next sequence (READ)


class Join(Record, frozen=True):
    """Take part in a group; `held` are the leases the client still has from before a reconnect."""

    group: str
    topics: list[str]
    start: Start = Start()
    held: list[Number] = []
    tag: str = ""
    filter: str = ""
    ordered: bool = False
    attempts_max: Number | None = (
        None  # Of a starting consumer: binds its group, the last one wins.
    )
    picks: bool = False  # This consumer reads picked batches (see `batch.rows.pick`).
    detached: bool = False  # What it is handed outlives this connection, and is settled by key.


class Joined(Record, frozen=True):
    subscription: Number
    topics: list[Topic]
    new: list[bool]
    """Per topic: was the group made by this call (so that `start` counted)."""
    kept: list[Number]
    """Which of the `held` leases are still this client's."""
    lease_ms: Number
    detached: bool = False
    """As was asked for; a broker that does not know detached leases does not say so."""


class Done(Record, frozen=True):
    """Rows of one lease that are settled: handled, to be retried later, refused for good, or given
    back untouched."""

    lease: Number
    first: Number
    end: Number
    kind: Literal["ack", "retry", "reject", "back"] = "ack"
    after_ms: Number = -1
    """For a retry; -1 leaves it to the group's policy."""
    reason: str = ""
    error: tuple[str, str, str] | None = None
    """Type, text, traceback."""


class Pull(Record, frozen=True):
    subscription: Number
    rows_max: Number
    size_max: Number
    wait_ms: Number
    done: list[Done] = []
    cold: bool = False
    """Bytes of old messages may be left out: this consumer gets them from a replica."""
    lease_ms: Number = 0
    """Of a detached consumer: for how long it wants what it gets."""


class LeftOut(Record, frozen=True):
    """Rows of one stored batch that are handed out without their bytes."""

    lease: Number
    lane: Number
    base: Number
    """Sequence of the batch's first row."""
    stored_at_ms: Number
    """Of the batch: what READ gives has to have the same."""
    ranges: list[tuple[Number, Number]]
    """Rows of the batch."""
    attempts: list[Number] = []
    """Per row; none: every row is at its first."""
    errors: list[tuple[Number, Number, str, str, str, Number]] = []
    """Why rows failed the last time, as in an envelope."""


class Ack(Record, frozen=True):
    subscription: Number
    done: list[Done]


class Acked(Record, frozen=True):
    settled: Number
    """Rows that changed state because of this call."""
    late: Number
    """Rows that were no longer this consumer's, or were settled before."""
    late_rows: list[tuple[Number, Number, Number]] = []
    """Of ordered groups and detached leases, which: lease, first, end. There a late outcome never
    counts."""


class Renew(Record, frozen=True):
    subscription: Number
    leases: list[Number]
    started: list[tuple[Number, Number, Number]] = []
    """Lease, first, end: rows that the consumer began to handle and has not settled."""


class Renewed(Record, frozen=True):
    lost: list[Number]


class LeaseKey(Record, frozen=True):
    """Who has it may settle what is under a detached lease."""

    lease: Number
    key: Number


class Settle(Record, frozen=True):
    """What became of rows of detached leases, from whoever has the keys."""

    topic: str
    group: str
    keys: list[LeaseKey]
    done: list[Done]


class Extend(Record, frozen=True):
    """Rows of detached leases are kept for `lease_ms` from now on."""

    topic: str
    group: str
    keys: list[LeaseKey]
    rows: list[tuple[Number, Number, Number]]
    """Lease, first, end."""
    lease_ms: Number


class Leave(Record, frozen=True):
    """Everything un-acked goes back to the group at once."""

    subscription: Number
