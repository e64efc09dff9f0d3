"""Ordered subscriptions: of every order key only the first unsettled message may be out.

Theory of operation
-------------------
Known rows with a key stand in a chain, one chain per key, in the order of their sequences. Only
the head of a chain can be handed out, and the next one follows when the head is settled. A head
that fails or whose consumer is lost stays the head and is handed out again: it holds back its own
key and nobody else (R6, J16). Rows without an order key stand alone.

How far ahead rows are known is bounded (`LOOK_AHEAD`); a key that fails for ever fills that window
in the end, which `full` says and the broker logs.

Rules
-----
1. Which rows are ready, leased or waiting is the lane's business. This only orders them; it can be
   built again from the lane and the messages at any moment.
2. No I/O, no clock.
"""

from collections import deque
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush

from ternmq.broker.groups.lane import Lane
from ternmq.broker.groups.lane_event import LaneEvent
from ternmq.core.range_set import RangeSet
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.pull.record import PullKind

LOOK_AHEAD = 10_000
NONE = RangeSet()
SETTLING = frozenset(
    {PullKind.ACKED, PullKind.DEAD, PullKind.EXPIRED, PullKind.SKIPPED, PullKind.FILTERED}
)


class KeyOrder:
    """The chains of one group on one lane."""

    def __init__(self, lane: Lane) -> None:
        self._chains: dict[str, deque[int]] = {}
        self._keys: dict[int, str | None] = {}  # Known and unsettled rows.
        self._entries: dict[int, ConsumeEntry] = {}
        self._ready: list[int] = []  # Heap: heads that can be handed out.
        self._out: set[int] = set()  # Heads that are with a consumer or wait for a retry.
        self.held: dict[int, list[int]] = {}
        """Heads by slot that wait for the slot's former owner, see `broker.slots`."""
        self.scanned = min(lane.done.first_gap(lane.start), lane.next)
        """Rows below are known or settled."""
        self.full_since_ms = 0
        """The time of day since when a failing key has filled the window; 0: it has not."""

    @property
    def full(self) -> bool:
        return len(self._keys) >= LOOK_AHEAD

    @property
    def ready(self) -> bool:
        return bool(self._ready)

    def longest(self) -> tuple[str, int, int]:
        """The key with most known rows, its head, and how many rows it holds back."""
        key, chain = max(self._chains.items(), key=lambda item: len(item[1]), default=("", None))
        return (key, chain[0], len(chain) - 1) if chain else ("", -1, 0)

    def held_back(self, sequence: int) -> int:
        """How many known rows wait for this one."""
        key = self._keys.get(sequence)
        chain = self._chains.get(key) if key is not None else None
        return len(chain) - 1 if chain and chain[0] == sequence else 0

    def before(self, sequence: int) -> tuple[str, int] | None:
        """The key of a known row, and which row of that key has to be settled first."""
        key = self._keys.get(sequence)
        head = self._chains[key][0] if key is not None else sequence
        return (key, head) if key is not None and head != sequence else None

    def waits_elsewhere(self, sequence: int) -> bool:
        """Is it a head whose slot waits for its former owner?"""
        return any(sequence in held for held in self.held.values())

    def learn(self, entry: ConsumeEntry, keys: list[str | None], lane: Lane) -> None:
        """The rows of a batch, with their order keys, from `scanned` on."""
        base = entry.base_sequence
        first = max(self.scanned, base)
        for a, b in lane.done.gaps(first, base + entry.count):
            for sequence in range(a, b):
                self._learn(sequence, keys[sequence - base], entry, lane)
        self.scanned = base + entry.count

    def take(
        self,
        rows_max: int,
        suspects: RangeSet = NONE,
        held: Callable[[str], int | None] | None = None,
    ) -> list[tuple[int, ConsumeEntry]]:
        """Heads that can be handed out, lowest sequences first; they count as out from now on.

        `held` names the slot of a key that has to wait for its former owner.
        """
        taken: list[tuple[int, ConsumeEntry]] = []
        passed: list[int] = []
        while self._ready and len(taken) < rows_max:
            sequence = heappop(self._ready)
            if sequence in suspects:
                passed.append(sequence)
            elif sequence in self._keys:
                key = self._keys[sequence]
                if held is not None and key is not None and (slot := held(key)) is not None:
                    self.held.setdefault(slot, []).append(sequence)
                    continue
                self._out.add(sequence)
                taken.append((sequence, self._entries[sequence]))
        for sequence in passed:
            heappush(self._ready, sequence)
        return taken

    def suspect(self, suspects: RangeSet) -> int | None:
        """The lowest head that can be handed out and has to be alone."""
        ready = [s for s in self._ready if s in suspects and s in self._keys]
        return min(ready, default=None)

    def take_one(self, sequence: int) -> None:
        """This head is handed out."""
        self._ready.remove(sequence)
        heapify(self._ready)
        self._out.add(sequence)

    def let_go(self, held: Collection[int]) -> bool:
        """Heads of other slots than these are ready again; were there any?"""
        free = [slot for slot in self.held if slot not in held]
        for slot in free:
            for sequence in self.held.pop(slot):
                heappush(self._ready, sequence)
        return bool(free)

    def heads(self) -> dict[str, int]:
        """The first unsettled row of every known key."""
        return {key: chain[0] for key, chain in self._chains.items()}

    def put_back(self, sequences: list[int]) -> None:
        """Rows were not handed out after all."""
        for sequence in sequences:
            self._out.discard(sequence)
            heappush(self._ready, sequence)

    def apply(self, changes: list[LaneEvent], lane: Lane) -> None:
        """Follow what the lane did."""
        back = False
        for change in changes:
            if change.kind in SETTLING:
                for first, end, _ in change.ranges:
                    self._settle(first, end, lane)
            elif change.kind in (PullKind.RETURNED, PullKind.LOST):
                back = True
        if back:
            self.come_back(lane)

    def come_back(self, lane: Lane) -> None:
        """Heads that are ready again: their lease ended, or their retry is due."""
        ready = RangeSet((first, end) for first, end, _ in lane.returned)
        for sequence in [s for s in self._out if s in ready]:
            self._out.discard(sequence)
            heappush(self._ready, sequence)

    def _learn(self, sequence: int, key: str | None, entry: ConsumeEntry, lane: Lane) -> None:
        self._keys[sequence] = key
        self._entries[sequence] = entry
        if key is not None:
            chain = self._chains.get(key)
            if chain is not None:
                chain.append(sequence)
                return
            self._chains[key] = deque((sequence,))
        self._offer(sequence, lane)

    def _offer(self, sequence: int, lane: Lane) -> None:
        """A row is the head of its chain now. It may be out though it was not the head: handed
        out before the group was ordered, or before a start that knows less than was done."""
        if sequence >= lane.next or lane.returned.get(sequence) is not None:
            heappush(self._ready, sequence)
        else:
            self._out.add(sequence)

    def _settle(self, first: int, end: int, lane: Lane) -> None:
        for sequence in range(first, end):
            if sequence not in self._keys:
                continue
            key = self._keys.pop(sequence)
            del self._entries[sequence]
            self._out.discard(sequence)
            if key is None:
                continue
            chain = self._chains[key]
            if chain[0] != sequence:
                chain.remove(sequence)
                continue
            chain.popleft()
            if chain:
                self._offer(chain[0], lane)
            else:
                del self._chains[key]
