"""The state of each row of one hour, its open intents and changed due times. Pure memory.

    pending --intent synced--> intended --broker has it--> dispatched
       ^  \\--cancel synced--> cancelled
       \\---- released (the group refused) ----'

Rows being written about are `busy`: whoever wants to decide otherwise waits for that. Replaying the
records of a dispatch log gives the same book.
"""

from collections import Counter

import numpy as np

from ternmq.delay.formats.decision import Decision, DecisionKind

PENDING, BUSY, INTENDED, DISPATCHED, CANCELLED = range(5)
MOVED = 0x80  # Its due time is in `moves`, not in the schedule log.
STATE = 0x7F


class DecisionBook:
    """What was decided about each row of one hour."""

    def __init__(self) -> None:
        self._states = np.zeros(64, np.uint8)
        self.rows = 0
        self.intents: dict[int, Decision] = {}
        """Not yet done, by their offset in the dispatch log."""
        self.moves: dict[int, tuple[int, int]] = {}
        """(due, topic) of rows that were moved and are not settled."""
        self.promised: set[int] = set()
        """Rows of open intents that were answered as dispatched. It stays so,
        also when their group refuses them and they wait for another one."""
        self.dispatched: Counter[int] = Counter()
        self.cancelled: Counter[int] = Counter()

    @property
    def states(self) -> np.ndarray:
        return self._states[: self.rows]

    @property
    def settled(self) -> int:
        """Rows that need nothing more."""
        return self.dispatched.total() + self.cancelled.total()

    def grow(self, rows: int) -> None:
        """The hour has so many rows now; new ones are pending."""
        if rows > len(self._states):
            states = np.zeros(max(rows, 2 * len(self._states)), np.uint8)
            states[: self.rows] = self._states[: self.rows]
            self._states = states
        self.rows = max(self.rows, rows)

    def state(self, row: int) -> int:
        return int(self._states[row]) & STATE

    def pending(self, rows: np.ndarray, due_ms: np.ndarray) -> np.ndarray:
        """Which of these rows may go out by an entry of the wheel that says `due_ms`."""
        states = self._states[rows]
        free: np.ndarray = states == PENDING
        moved = np.flatnonzero(states == (PENDING | MOVED))
        for at in moved.tolist():  # Single rows that somebody moved.
            free[at] = self.moves[int(rows[at])][0] == int(due_ms[at])
        return free

    def due_of(self, row: int, due_ms: int) -> int:
        """When a row is due that the schedule log says is due at `due_ms`."""
        moved = self.moves.get(row)
        return due_ms if moved is None else moved[0]

    def hold(self, rows: np.ndarray, now_ms: int) -> np.ndarray:
        """Mark those that are still pending, and not moved past now, as busy; return them."""
        states = self._states[rows]
        free = (states & STATE) == PENDING
        for at in np.flatnonzero(states == (PENDING | MOVED)).tolist():
            free[at] = self.moves[int(rows[at])][0] <= now_ms
        held: np.ndarray = rows[free]
        self._mark(held, BUSY)
        return held

    def free(self, rows: np.ndarray) -> None:
        """Busy rows are pending again: what should have been written was not."""
        busy = rows[(self._states[rows] & STATE) == BUSY]
        self._mark(busy, PENDING)

    def apply(self, decision: Decision) -> None:
        """A record is in the log (and synced where that matters)."""
        rows = decision.rows
        if len(rows):
            self.grow(int(rows.max()) + 1)
        match decision.kind:
            case DecisionKind.INTENT:
                self._mark(rows, INTENDED)
                self.intents[decision.offset] = decision
            case DecisionKind.DONE:
                intent = self.intents.pop(decision.value, None)
                if intent is not None:
                    self._settle(intent.rows, DISPATCHED)
                    self.dispatched[intent.topic_id] += len(intent.rows)
            case DecisionKind.RELEASED:
                intent = self.intents.pop(decision.value, None)
                if intent is not None:
                    self._mark(intent.rows, PENDING)
            case DecisionKind.CANCELLED:
                fresh = rows[(self._states[rows] & STATE) != CANCELLED]
                self._settle(fresh, CANCELLED)
                self.cancelled[decision.topic_id] += len(fresh)
            case DecisionKind.MOVED:
                for row in rows.tolist():
                    self.moves[row] = (decision.value, decision.topic_id)
                self._states[rows] = PENDING | MOVED

    def _settle(self, rows: np.ndarray, state: int) -> None:
        if self.moves:
            for row in rows[(self._states[rows] & MOVED) != 0].tolist():
                self.moves.pop(row, None)
        if self.promised:
            self.promised.difference_update(rows.tolist())
        self._states[rows] = state

    def _mark(self, rows: np.ndarray, state: int) -> None:
        self._states[rows] = (self._states[rows] & MOVED) | state
