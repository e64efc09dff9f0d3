"""How long messages of a group waited, and how long they were worked on."""

from ternmq.wire.record import Number, Record


class TimeCounts(Record, frozen=True):
    """Messages by how long something took."""

    counts: list[Number] = []
    """Since the broker started, by `GroupTimes.bounds_s`; one more, for what is beyond all."""
    total_s: float = 0.0
    """All of it added up."""
    recent: list[Number] = []
    """The same of the last five to ten minutes."""


class LaneTimes(Record, frozen=True):
    """One lane of a group."""

    lane: str
    """topic, private"""
    wait: TimeCounts
    """From stored until handed out for the first time."""
    handle: TimeCounts
    """From handed out until acked."""


class GroupTimes(Record, frozen=True):
    """What one broker group has seen of a group."""

    bounds_s: list[float]
    lanes: list[LaneTimes]
