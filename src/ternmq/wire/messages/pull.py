"""Requests of a consumer and their answers: join, pull, ack, renew, leave."""

import struct
from typing import Literal

from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.topics import Topic
from ternmq.wire.record import Record

DELIVERED = struct.Struct("<IIQ")  # envelope count, left out (PULL), next sequence (READ)


class Join(Record, frozen=True):
    """Take part in a group; `held` are the leases the client still has from before a reconnect."""

    group: str
    topics: list[str]
    start: Start = Start()
    held: list[int] = []
    tag: str = ""
    filter: str = ""
    ordered: bool = False
    attempts_max: int | None = None  # Of a starting consumer: binds its group, the last one wins.
    picks: bool = False  # This consumer reads picked batches (see `batch.picked`).


class Joined(Record, frozen=True):
    subscription: int
    topics: list[Topic]
    new: list[bool]
    """Per topic: was the group made by this call (so that `start` counted)."""
    kept: list[int]
    """Which of the `held` leases are still this client's."""
    lease_ms: int


class Done(Record, frozen=True):
    """Rows of one lease that are settled: handled, to be retried later, refused for good, or given
    back untouched."""

    lease: int
    first: int
    end: int
    kind: Literal["ack", "retry", "reject", "back"] = "ack"
    after_ms: int = -1
    """For a retry; -1 leaves it to the group's policy."""
    reason: str = ""
    error: tuple[str, str, str] | None = None
    """Type, text, traceback."""


class Pull(Record, frozen=True):
    subscription: int
    rows_max: int
    size_max: int
    wait_ms: int
    done: list[Done] = []
    cold: bool = False
    """Bytes of old messages may be left out: this consumer gets them from a replica."""


class LeftOut(Record, frozen=True):
    """Rows of one stored batch that are handed out without their bytes."""

    lease: int
    lane: int
    base: int
    """Sequence of the batch's first row."""
    stored_at_ms: int
    """Of the batch: what READ gives has to have the same."""
    ranges: list[tuple[int, int]]
    """Rows of the batch."""
    attempts: list[int] = []
    """Per row; none: every row is at its first."""
    errors: list[tuple[int, int, str, str, str, int]] = []
    """Why rows failed the last time, as in an envelope."""


class Ack(Record, frozen=True):
    subscription: int
    done: list[Done]


class Acked(Record, frozen=True):
    settled: int
    """Rows that changed state because of this call."""
    late: int
    """Rows that were no longer this consumer's, or were settled before."""


class Renew(Record, frozen=True):
    subscription: int
    leases: list[int]
    started: list[tuple[int, int, int]] = []
    """Lease, first, end: rows that the consumer began to handle and has not settled."""


class Renewed(Record, frozen=True):
    lost: list[int]


class Leave(Record, frozen=True):
    """Everything un-acked goes back to the group at once."""

    subscription: int
