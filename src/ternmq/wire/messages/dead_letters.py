"""Dead letters of a group: which are open, sending them again, letting them go.

Ranges are sequences of the hidden topic `%dead.GROUP` on the broker group that is asked.
"""

from ternmq.wire.record import Number, Record


class DeadFind(Record, frozen=True):
    group: str
    newest: Number = 0
    """Only the newest so many; 0: all of them."""


class DeadOpen(Record, frozen=True):
    """Letters that are not handled yet: ranges of sequences in the group's dead-letter topic."""

    ranges: list[tuple[Number, Number]]
    expired: Number = 0
    """So many went because their time was over."""
    open: Number = -1
    """So many are open, also those that were not asked for; -1: an earlier release."""


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
    newest: Number = 0
    """Only the newest so many; 0: all of them."""


class RefusedHandle(Record, frozen=True):
    topic: str
    ranges: list[tuple[Number, Number]]


class DeadGroupsFind(Record, frozen=True):
    after: str = ""
    limit: Number = 1000


class DeadGroup(Record, frozen=True):
    """A group that has dead letters."""

    group: str
    open: Number
    """Letters that nobody has handled yet."""
    stored: Number
    """All that are kept, handled or not."""
    broker_group: str = ""


class DeadGroups(Record, frozen=True):
    groups: list[DeadGroup]
    following: str = ""


class DeadRecall(Record, frozen=True):
    """Take back letters that were sent again and that nobody was handed yet."""

    group: str
    topic: str
    """Where the letters came from."""
    ranges: list[tuple[Number, Number]] = []
    """Which letters; none named: all."""
    after: Number = 0
    """`following` of the answer before."""


class DeadRecalled(Record, frozen=True):
    taken: Number
    """They are open letters again."""
    following: Number = 0
    """0: all that were not handed out have been looked at."""
