"""Replication: a replica sends FOLLOW once, then log bytes stream to it and answers back.

A replica connects to its master and says FOLLOW: who it is, under which epoch, and how far its
logs go. The answer says where its history and the master's part (the rest is to be cut) and hands
over the master's table of epochs. The replica cuts, says REPLICATED for every log, and from then on
the master pushes REPLICATE frames: bytes of one log at one offset and how much of that log is safe.
REPLICATED says how much the replica holds. Both are pipelined; neither waits for the other.

`REPLICATE` is the head of a pushed frame, the bytes of the log follow (none: only the marks moved):
how much of the log is safe, and where it begins, so that replicas let go what the master let go.
Logs have numbers: 0 is the message log, 1 the pull log of a broker or the decisions of a delay
server. A replica that lacks what the master no longer has in its logs begins with a base.
"""

import struct

from ternmq.wire.record import Number, Record

MESSAGES, PULLS = 0, 1


DECISIONS = 1


REPLICATE = struct.Struct("<QQQQHH4x")  # epoch, offset, safe to, start, log, flags


REPLICATE_SYNC = 1  # Must be on disk before it is answered.


REPLICATED = struct.Struct("<QQHH4x")  # epoch, end held, log, flags (0)


class LogHeld(Record, frozen=True):
    """How far one log of a member goes."""

    log: Number
    start: Number
    end: Number
    safe: Number
    """Below it nothing may be cut: it was acknowledged."""
    epochs: list[tuple[Number, Number]]
    """Epoch and the offset at which it began, oldest first."""


class Follow(Record, frozen=True):
    """A replica wants the logs of its master, from where both have the same history."""

    broker_group: str
    member: str
    epoch: Number
    logs: list[LogHeld]


class LogPlan(Record, frozen=True):
    """What a replica does with one log before the stream begins."""

    log: Number
    cut_to: Number
    """Bytes from here on are not the master's."""
    start: Number
    """Where the master's log begins."""
    epochs: list[tuple[Number, Number]]


class Followed(Record, frozen=True):
    epoch: Number
    logs: list[LogPlan]
    base: bytes = b""
    """What an empty replica begins with, where the master's logs no longer begin at 0."""


class BaseOpen(Record, frozen=True):
    """A replica whose logs end before its master's begin wants the files that came of them. They
    are held for it, as they are now, until the connection ends."""

    broker_group: str
    member: str
    epoch: Number


class BaseOpened(Record, frozen=True):
    size: Number
    """Of the list of files, which is read first, as the file `manifest`."""


class BaseRead(Record, frozen=True):
    """A piece of one of the files."""

    kind: str
    hour: Number
    offset: Number
    size: Number


class BasePiece(Record, frozen=True):
    data: bytes
