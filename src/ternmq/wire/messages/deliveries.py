"""Reading what groups were handed and what became of it: the records of a broker's pull log."""

from ternmq.wire.messages.commands import Record


class DeliveriesRead(Record, frozen=True):
    """Records from `position` on, an offset in the broker's pull log; -1 asks for bounds only."""

    position: int
    size_max: int
    end: int = 0
    """Not beyond this offset; 0 means no end."""


class DeliveriesNames(Record, frozen=True):
    """Whose records they are."""

    group_id: int
    group: str
    topic: str
    lane: str
    """'topic', or 'private' for what is meant for the group alone."""


class DeliveriesPage(Record, frozen=True):
    first: int
    """Where the log begins now; records before it are gone."""
    end: int
    """Where its safe part ends now."""
    following: int
    """Where the next read goes on."""
    records: bytes
    """Whole pull records, one after the other, snapshots left out."""
    names: list[DeliveriesNames]
