"""Dead letters of a group: which are open, sending them again, letting them go.

Ranges are sequences of the hidden topic `%dead.GROUP` on the broker group that is asked.
"""

from ternmq.wire.record import Number, Record


class DeadFind(Record, frozen=True):
    group: str


class DeadOpen(Record, frozen=True):
    """Letters that are not handled yet: ranges of sequences in the group's dead-letter topic."""

    ranges: list[tuple[Number, Number]]
    expired: Number = 0
    """So many went because their time was over."""


class DeadHandle(Record, frozen=True):
    group: str
    ranges: list[tuple[Number, Number]]


class DeadDone(Record, frozen=True):
    handled: Number
    failed: list[str]
    """One line per letter that could not be sent again."""
    gone: list[tuple[Number, Number]] = []  # Not open, or in somebody else's hands.


class RefusedFind(Record, frozen=True):
    topic: str


class RefusedHandle(Record, frozen=True):
    topic: str
    ranges: list[tuple[Number, Number]]
