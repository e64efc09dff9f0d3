"""All hours of a delay server by their start, and the counts of those that are gone. Pure memory.

An `Hours` has one owner at a time, and only its owner changes it:

    while the server follows, or starts   the scheduling thread, by `store.hour_owners`
    while it leads                        the event loop, by `timing.engine`; the scheduling thread
                                          may only ask whether an hour is there

`FollowingStore.lead` is the one place where the owner changes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.hours.hour import Hour
from ternmq.delay.hours.hour_index import IndexedRows


class DelayTotals(NamedTuple):
    """The ledger of one topic: accepted = pending + dispatched + cancelled."""

    accepted: int
    pending: int
    dispatched: int
    cancelled: int


class Hours(dict[int, Hour]):
    """The hours that have messages."""

    def __init__(
        self, found: Mapping[int, Hour], known: DelayCheckpoint, scheduled_to: int
    ) -> None:
        super().__init__(found)
        self.scheduled_to = scheduled_to
        """Rows of the message log below this are in here."""
        self.stored_at_ms = known.stored_at_ms
        """No row that is still to come is stored earlier."""
        self.gone_dispatched = Counter({topic.id: topic.dispatched for topic in known.topics})
        self.gone_cancelled = Counter({topic.id: topic.cancelled for topic in known.topics})
        self.dropping: set[int] = set()
        """Hours that are gone and whose files may still be there."""

    def grew(self, start: int, entry: IndexedRows) -> Hour:
        """A record was added to the schedule log of an hour."""
        hour = self.get(start)
        if hour is None:
            hour = self[start] = Hour(start)
        hour.grew(entry)
        return hour

    def scheduled_upto(self, offset: int, stored_at_ms: int) -> None:
        """All records of the message log below `offset` were added."""
        self.scheduled_to = offset
        self.stored_at_ms = max(self.stored_at_ms, stored_at_ms)

    def leave(self, start: int) -> None:
        """An hour is gone: its counts stay, its files go with the next checkpoint."""
        hour = self.pop(start)
        self.gone_dispatched.update(hour.dispatched)
        self.gone_cancelled.update(hour.cancelled)
        self.dropping.add(start)

    def dropped(self, starts: Iterable[int]) -> None:
        """The files of these hours are removed."""
        self.dropping.difference_update(starts)

    def ledger(self, accepted: Mapping[int, int]) -> dict[int, DelayTotals]:
        """By topic, from how many messages each topic ever had."""
        dispatched, cancelled = self.gone_dispatched.copy(), self.gone_cancelled.copy()
        for hour in self.values():
            dispatched.update(hour.dispatched)
            cancelled.update(hour.cancelled)
        return {
            topic_id: DelayTotals(
                count,
                count - dispatched[topic_id] - cancelled[topic_id],
                dispatched[topic_id],
                cancelled[topic_id],
            )
            for topic_id, count in accepted.items()
        }
