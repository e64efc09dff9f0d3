"""Asking whether a group has acked stored messages; the broker answers when it has.

`Confirmed` is about every row of the range: those it names are open or were settled otherwise, all
others are acked, and that is as safe as the messages themselves. An empty range only asks whether
the group is there.
"""

from typing import Literal

from ternmq.wire.messages.commands import Record

State = Literal["dead", "expired", "filtered", "skipped", "unknown"]


class Confirm(Record, frozen=True):
    topic: str
    group: str
    first: int = 0
    end: int = 0
    wait_ms: int = 0
    """How long the broker may wait for rows that are open."""


class Confirmed(Record, frozen=True):
    open: list[tuple[int, int]]
    """Not settled yet."""
    refused: list[tuple[int, int, State]]
    """Settled, but not by an ack; 'unknown' when that is too long ago to tell."""
