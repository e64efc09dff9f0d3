"""The unsettled rows of a consumer, by delivery, with their leases. Pure.

A lost lease frees its place at once, but its rows may still be in the application's hands. Those
are remembered: when they are delivered again (under a new lease) they are not shown a second time,
and the application's late ack settles the new delivery.
"""

from collections import deque
from collections.abc import Callable, Iterable

from ternmq.client.model.delivery import Delivery
from ternmq.core.range_set import RangeSet

LOST_KEPT_MAX = 256
STARTED_MAX = 10_000  # Ranges reported in one request; they only help to find a culprit sooner.


class HeldRows:
    """Deliveries whose rows are not all settled."""

    __slots__ = ("_held", "_lost", "rows", "size")

    def __init__(self) -> None:
        self._held: dict[int, Delivery] = {}
        self._lost: deque[Delivery] = deque(maxlen=LOST_KEPT_MAX)
        self.rows = 0
        """Delivered and not settled."""
        self.size = 0
        """Bytes of the batches these rows lie in."""

    def leases(self) -> list[int]:
        """The leases that rows are held under, each once."""
        return list(dict.fromkeys(delivery.lease for delivery in self._held.values()))

    def started(
        self, unshown: Callable[[Delivery], list[tuple[int, int]]]
    ) -> list[tuple[int, int, int]]:
        """(lease, first, end) in sequences of rows that were shown and are not settled."""
        found: list[tuple[int, int, int]] = []
        for delivery in self._held.values():
            hidden = RangeSet(unshown(delivery))
            found += [
                (delivery.lease, delivery.base + a, delivery.base + b)
                for first, end in delivery.open_ranges(0, len(delivery.settled))
                for a, b in hidden.gaps(first, end)
            ]
        return found[:STARTED_MAX]

    def add(self, delivery: Delivery) -> None:
        """Take a delivery in; rows that are in hand already are hidden from it."""
        self._held[id(delivery)] = delivery
        self.rows += delivery.remaining
        self.size += delivery.batch.size
        if self._lost:
            self._hide_rows_in_hand(delivery)

    def finished(self, delivery: Delivery) -> None:
        """Every row is settled."""
        if self._held.pop(id(delivery), None) is not None:
            self.size -= delivery.batch.size

    def settle(self, delivery: Delivery, first: int, end: int) -> list[tuple[int, int, int]]:
        """Count rows as settled; return (lease, first, end) in sequences, as the broker knows."""
        if not delivery.lost:
            self.leave(delivery, end - first)
            return [(delivery.lease, delivery.base + first, delivery.base + end)]
        if delivery.moved is None:
            return [(delivery.lease, delivery.base + first, delivery.base + end)]
        found: list[tuple[int, int, int]] = []
        for row in range(first, end):
            sequence = delivery.base + row
            newer = delivery.moved.pop(row, None)
            if newer is None or newer.lost:
                found.append((delivery.lease, sequence, sequence + 1))
                continue
            newer.settled[sequence - newer.base] = 1
            self.leave(newer, 1)
            found.append((newer.lease, sequence, sequence + 1))
        return found

    def extend(self, leases: Iterable[int], until: float) -> None:
        """The leases are ours until then, at least."""
        renewed = set(leases)
        for delivery in self._held.values():
            if delivery.lease in renewed and delivery.until < until:
                delivery.until = until

    def lose(self, leases: set[int]) -> list[Delivery]:
        """Let go of these leases; return their deliveries."""
        lost = [delivery for delivery in self._held.values() if delivery.lease in leases]
        for delivery in lost:
            del self._held[id(delivery)]
            self.rows -= delivery.remaining
            self.size -= delivery.batch.size
            delivery.lost = True
            for first, end in delivery.selection:
                for row in range(first, end) if delivery.ranges is not delivery.selection else ():
                    if not any(low <= row < high for low, high in delivery.ranges):
                        delivery.settled[row] = 1  # Hidden: an older delivery stands for it.
            self._lost.append(delivery)
        return lost

    def leave(self, delivery: Delivery, count: int) -> None:
        """So many of its rows are settled."""
        self.rows -= count
        delivery.remaining -= count
        if not delivery.remaining:
            self.finished(delivery)

    def _hide_rows_in_hand(self, delivery: Delivery) -> None:
        """Per row, but only after a lease was lost."""
        hidden: set[int] = set()
        in_hand = [old for old in self._lost if old.settled.find(0) >= 0]
        self._lost = deque(in_hand, maxlen=LOST_KEPT_MAX)
        for old in in_hand:
            if old.lane != delivery.lane:
                continue
            for first, end in delivery.selection:
                low = max(first + delivery.base, old.base)
                high = min(end + delivery.base, old.base + len(old.settled))
                for sequence in range(low, high):
                    if not old.settled[sequence - old.base]:
                        old.moved = old.moved or {}
                        old.moved[sequence - old.base] = delivery
                        hidden.add(sequence - delivery.base)
        if hidden:
            delivery.ranges = without(delivery.ranges, hidden)


def without(ranges: list[tuple[int, int]], hidden: set[int]) -> list[tuple[int, int]]:
    """The ranges less some rows."""
    left: list[tuple[int, int]] = []
    for first, end in ranges:
        for row in range(first, end):
            if row in hidden:
                continue
            if left and left[-1][1] == row:
                left[-1] = (left[-1][0], row + 1)
            else:
                left.append((row, row + 1))
    return left
