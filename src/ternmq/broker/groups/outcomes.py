"""How rows of a lane were settled, where that was not by an ack: the newest ones.

The lane's `done` says that a row is settled, and the ledger counts how many were settled how; who
asks about single rows (a producer that waits for a confirmation) needs this. Bounded: what is
forgotten raises `floor`, and below it nobody can say any more whether a settled row was acked.
Follows the lane's changes, at work and in replay alike. Pure memory.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from ternmq.broker.groups.lane_event import LaneEvent, Piece
from ternmq.storage.pull.record import PullKind
from ternmq.wire.messages.publish import SettledState

KEPT_MAX = 4096  # Ranges.
SAVED_MAX = 256  # Ranges in a snapshot.
STATES: dict[PullKind, SettledState] = {
    PullKind.DEAD: "dead",
    PullKind.EXPIRED: "expired",
    PullKind.FILTERED: "filtered",
    PullKind.SKIPPED: "skipped",
}


class Outcomes:
    """Ranges with the kind of change that settled them, oldest first."""

    __slots__ = ("_index", "_pieces", "floor")

    def __init__(self, pieces: Iterable[Piece] = (), floor: int = 0) -> None:
        self._pieces: deque[Piece] = deque(pieces)
        self._index: list[Piece] | None = None
        self.floor = floor

    def note(self, change: LaneEvent) -> None:
        """A step of the lane was made."""
        kind = change.kind
        if kind in STATES:
            self._pieces.extend([(first, end, kind) for first, end, _ in change.ranges])
            self._index = None
            self._forget(KEPT_MAX)
        elif kind is PullKind.CUT:
            cut = change.ranges[0][0]
            kept = [(first, min(end, cut), by) for first, end, by in self._pieces if first < cut]
            self._pieces = deque(kept)
            self._index = None
            self.floor = min(self.floor, cut)

    def begin(self, start: int, target: int) -> None:
        """A new generation that goes on from `target`: rows from `start` on stand for what was
        skipped, and nobody knows what became of rows before."""
        self._index = None
        self._pieces.clear()
        if start < target:
            self._pieces.append((start, target, PullKind.SKIPPED))
        self.floor = start

    def skip(self, skipped: list[tuple[int, int]]) -> None:
        """The lane goes on elsewhere and skipped these rows."""
        self._index = None
        self._pieces.extend([(first, end, PullKind.SKIPPED) for first, end in skipped[-KEPT_MAX:]])
        if len(skipped) > KEPT_MAX:
            self.floor = max(self.floor, skipped[-KEPT_MAX - 1][1])
        self._forget(KEPT_MAX)

    def saved(self) -> tuple[list[Piece], int]:
        """The newest ones and their floor, for a snapshot."""
        newest = Outcomes(self._pieces, self.floor)
        newest._forget(SAVED_MAX)
        return list(newest._pieces), newest.floor

    def within(self, first: int, end: int) -> list[tuple[int, int, SettledState]]:
        """How the rows of a settled range were settled, where not by an ack."""
        if self._index is None:
            self._index = sorted(self._pieces)
        found: list[tuple[int, int, SettledState]] = []
        index = self._index
        at = max(0, bisect_right(index, (first, 0, 0)) - 1)
        below = first  # Everything before this is spoken for.
        while at < len(index) and index[at][0] < end:
            low, high, kind = max(index[at][0], first), min(index[at][1], end), index[at][2]
            at += 1
            if low >= high:
                continue
            self._add_unknown(found, below, low)
            found.append((low, high, STATES[PullKind(kind)]))
            below = max(below, high)
        self._add_unknown(found, below, end)
        return found

    def _add_unknown(
        self, found: list[tuple[int, int, SettledState]], first: int, end: int
    ) -> None:
        end = min(end, self.floor)
        if first < end:
            found.append((first, end, "unknown"))

    def _forget(self, kept_max: int) -> None:
        while len(self._pieces) > kept_max:
            self.floor = max(self.floor, self._pieces.popleft()[1])
