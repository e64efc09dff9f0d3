"""Dead letters of a group: which are open, sending them again, letting them go.

Ranges are sequences of the hidden topic `%dead.GROUP` on the broker group that is asked.
"""

from ternmq.wire.record import Record


class DeadFind(Record, frozen=True):
    group: str


class DeadOpen(Record, frozen=True):
    """Letters that are not handled yet: ranges of sequences in the group's dead-letter topic."""

    ranges: list[tuple[int, int]]
    expired: int = 0
    """So many went because their time was over."""


class DeadHandle(Record, frozen=True):
    group: str
    ranges: list[tuple[int, int]]


class DeadDone(Record, frozen=True):
    handled: int
    failed: list[str]
    """One line per letter that could not be sent again."""
    gone: list[tuple[int, int]] = []  # Not open, or in somebody else's hands.


class RefusedFind(Record, frozen=True):
    topic: str


class RefusedHandle(Record, frozen=True):
    topic: str
    ranges: list[tuple[int, int]]
