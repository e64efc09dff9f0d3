"""Getting to know priorities: looks into batches ahead and keeps the ranks of each group.

Batches that are not in memory are read by a thread, and the group is fed again (see `lookup`).
"""

from ternmq.batch.view import BatchView
from ternmq.broker.delivery.lookup import Lookup, passing
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.priority import PriorityRanks
from ternmq.core.range_set import RangeSet
from ternmq.storage.consume.entry import ConsumeEntry


class PriorityPicker:
    """Keeps the ranks of groups that hand out by priority."""

    def __init__(self, *, groups: ConsumerGroups, lookup: Lookup) -> None:
        self._groups = groups
        self._lookup = lookup

    def of(self, group: ConsumerGroup) -> PriorityRanks:
        """The group's ranks, with everything known that can be known now."""
        ranks = group.ranks
        if ranks is None or not ranks.fits(group.lane):
            ranks = group.ranks = PriorityRanks(group.lane)
        self._learn(group, ranks)
        return ranks

    def _learn(self, group: ConsumerGroup, ranks: PriorityRanks) -> None:
        lane = group.lane
        while not ranks.full and ranks.scanned < lane.end:
            entries = self._lookup.entries(group, ranks.scanned)
            if not entries:
                return
            for entry in entries:
                if ranks.full or not self._learn_batch(group, ranks, entry):
                    return

    def _learn_batch(self, group: ConsumerGroup, ranks: PriorityRanks, entry: ConsumeEntry) -> bool:
        lane, base = group.lane, entry.base_sequence
        end = base + entry.count
        if end > lane.end:
            return False
        view = None
        if entry.priority or group.filter is not None:
            view = self._lookup.view(group, entry)
            if view is None:
                return False
        if base > lane.next:
            self._groups.write(group, lane.skip_gap(base))
        if end > lane.next:
            lane.look_ahead(end)
        if group.filter is not None and view is not None:
            for first, stop in RangeSet(passing(group, view)).gaps(0, entry.count):
                self._groups.write(group, lane.filter_out(base + first, base + stop))
        ranks.learn(entry, _priorities(view) if view is not None else [])
        return True


def _priorities(view: BatchView) -> list[int]:
    """None where they cannot be read: all rows count as 0."""
    try:
        return view.priorities()
    except Exception:
        return []
