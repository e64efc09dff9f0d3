"""Choosing in order: of every key the first unsettled row that is not out already.

Gets to know rows ahead, up to `key_order.LOOK_AHEAD`. A failing key that fills this window holds
back everybody: that is an alarm, logged once and shown by `tern group show` until it is over.
"""

from collections.abc import Callable, Collection

from ternmq.batch.readability import order_keys_of
from ternmq.broker.delivery.handout import Slice
from ternmq.broker.delivery.lookup import Lookup, passing
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import NOTES_PER_PULL
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane_event import Piece
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.core.slots import slot_of
from ternmq.storage.consume.entry import ConsumeEntry

log = get_logger()

HeldSlots = Callable[[ConsumerGroup], Collection[int]]
"""Order-key slots of which an ordered group gets nothing yet, see `broker.slots`."""


class OrderedPicker:
    """Chooses rows for ordered groups: one of each order key at a time."""

    def __init__(self, *, groups: ConsumerGroups, lookup: Lookup, held_slots: HeldSlots) -> None:
        self._groups = groups
        self._lookup = lookup
        self._held_slots = held_slots

    def take(
        self, group: ConsumerGroup, order: KeyOrder, rows_max: int, size_max: int
    ) -> tuple[list[Piece], list[Slice]]:
        """Rows to be leased now; they count as out."""
        lane = group.lane
        self._learn(group, order)
        again: list[Piece] = []
        slices: list[Slice] = []
        size = noted = 0
        taken = order.take(rows_max, lane.poison.suspects, self._held(group))
        for index, (sequence, entry) in enumerate(taken):
            if not slices or slices[-1].entry.base_sequence != entry.base_sequence:
                if slices and (size + entry.size > size_max or noted >= NOTES_PER_PULL):
                    order.put_back([left for left, _ in taken[index:]])
                    break
                slices.append(Slice(entry, [], []))
                size += entry.size
            attempt = lane.returned.get(sequence) or 1
            noted += attempt > 1
            row = sequence - entry.base_sequence
            selection = slices[-1].selection
            if selection and selection[-1][1] == row:
                selection[-1] = (selection[-1][0], row + 1)
            else:
                selection.append((row, row + 1))
            slices[-1].attempts.append(attempt)
            again.append((sequence, sequence + 1, attempt))
        return again, slices

    def _held(self, group: ConsumerGroup) -> Callable[[str], int | None] | None:
        """Which keys wait for the former owner of their slot; none, as a rule."""
        slots = self._held_slots(group)
        if not slots:
            return None

        def held(key: str) -> int | None:
            slot = slot_of(group.topic, key)
            return slot if slot in slots else None

        return held

    def _learn(self, group: ConsumerGroup, order: KeyOrder) -> None:
        """Get to know rows ahead, up to the bound."""
        lane = group.lane
        while not order.full and order.scanned < lane.end:
            entries = self._lookup.entries(group, order.scanned)
            if not entries:
                return
            for entry in entries:
                if order.full or not self._learn_batch(group, order, entry):
                    return
        if not order.full:
            order.full_since_ms = 0
        elif not order.ready and not order.full_since_ms:
            self._alarm(group, order)

    def _alarm(self, group: ConsumerGroup, order: KeyOrder) -> None:
        """The window is full and nothing in it can go: say which failing key holds it."""
        key, head, rows = order.longest()
        if group.lane.waiting.get(head) is None:
            return  # It is being worked on.
        order.full_since_ms = self._groups.now_ms()
        log.warning(
            "look-ahead full: a failing key holds back its group",
            topic=group.topic,
            group=group.name,
            key=key,
            sequence=head,
            rows=rows,
        )

    def _learn_batch(self, group: ConsumerGroup, order: KeyOrder, entry: ConsumeEntry) -> bool:
        lane = group.lane
        end = entry.base_sequence + entry.count
        if end > lane.end:
            return False
        view = self._lookup.view(group, entry)
        if view is None:
            return False
        if entry.base_sequence > lane.next:
            self._groups.write(group, lane.skip_gap(entry.base_sequence))
        if end > lane.next:
            lane.look_ahead(end)
        if group.filter is not None:
            kept = RangeSet(passing(group, view))
            for first, stop in kept.gaps(0, entry.count):
                base = entry.base_sequence
                self._groups.write(group, lane.filter_out(base + first, base + stop))
        order.learn(entry, order_keys_of(view), lane)
        return True
