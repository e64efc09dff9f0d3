"""Requests and answers about order keys of a group: which ones stand still, and letting them go."""

from ternmq.wire.messages.commands import Record


class StoppedKey(Record, frozen=True):
    """A key whose first unsettled message failed in a group that stops then."""

    key: str | None
    sequence: int
    attempt: int
    """The attempt that would come next."""
    held_back: int
    """Messages of this key that are known to wait behind it."""
    error: str = ""


class GroupKeys(Record, frozen=True):
    stopped: list[StoppedKey]
    """The first ones, by sequence."""
    stopped_count: int = 0
    full_since_ms: int = 0
    """Since when a failing key has filled the look-ahead; 0: it has not."""
    full_key: str = ""
    full_rows: int = 0
    """Known messages that wait behind that key."""


class KeyResume(Record, frozen=True):
    """Let stopped keys go on: retried, or (`skip`) with the failed message as a dead letter."""

    topic: str
    group: str
    key: str | None = None
    """None: every one of them."""
    skip: bool = False


class KeyResumed(Record, frozen=True):
    rows: int
