"""Rows that are due and wait for a worker, in fragments. Pure memory, bounded by the caller.

A row belongs to the fragment of its topic, so a topic's rows keep their order and a worker that is
slow with one fragment leaves the others to the rest. Fresh rows go first; while late ones wait too,
every `LATE_SHARE`th turn is theirs, so neither starves the other.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

LATE_SHARE = 4


class Batch(NamedTuple):
    """Rows of one topic in one hour."""

    hour: int
    topic_id: int
    rows: np.ndarray
    due_ms: int
    """When the first of them was due."""
    late: bool = False


class ReadyRows:
    """The fragments, each with a fresh and a late queue."""

    def __init__(self, fragments: int) -> None:
        self._queues: list[tuple[deque[Batch], deque[Batch]]] = [
            (deque(), deque()) for _ in range(fragments)
        ]
        self._taken: set[int] = set()
        self._turn = 0
        self._next = 0
        self.rows = 0
        self.late_rows = 0

    def put(self, batch: Batch) -> None:
        self._queue(batch).append(batch)

    def put_back(self, batch: Batch) -> None:
        """What a worker took and could not use goes before everything else of its kind."""
        self._queue(batch).appendleft(batch)

    def _queue(self, batch: Batch) -> deque[Batch]:
        self.rows += len(batch.rows)
        self.late_rows += len(batch.rows) if batch.late else 0
        return self._queues[batch.topic_id % len(self._queues)][batch.late]

    def take(self, rows_max: int) -> tuple[int, Batch] | None:
        """The next rows and their fragment, which is given to no other worker until `done`."""
        self._turn += 1
        kinds = (1, 0) if self._turn % LATE_SHARE == 0 else (0, 1)
        count = len(self._queues)
        for kind in kinds:
            for step in range(count):
                fragment = (self._next + step) % count
                queue = self._queues[fragment][kind]
                if queue and fragment not in self._taken:
                    self._next = fragment + 1
                    self._taken.add(fragment)
                    return fragment, self._cut(queue, rows_max)
        return None

    def _cut(self, queue: deque[Batch], rows_max: int) -> Batch:
        """Up to so many rows; what follows for the same topic and hour joins in."""
        batch = queue.popleft()
        parts, count, due_ms = [batch.rows], len(batch.rows), batch.due_ms
        while queue and count < rows_max and queue[0][:2] == batch[:2]:
            more = queue.popleft()
            parts.append(more.rows)
            count += len(more.rows)
            due_ms = min(due_ms, more.due_ms)
        rows = np.concatenate(parts)
        if count > rows_max:
            queue.appendleft(batch._replace(rows=rows[rows_max:], due_ms=due_ms))
            rows = rows[:rows_max]
        self.rows -= len(rows)
        self.late_rows -= len(rows) if batch.late else 0
        return batch._replace(rows=rows, due_ms=due_ms)

    def done(self, fragment: int) -> None:
        """Others may work on this fragment again."""
        self._taken.discard(fragment)
