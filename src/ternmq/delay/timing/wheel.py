"""The timer: rows of loaded hours by due time, and which of them are due. Pure, numpy.

A *run* is some rows of one hour sorted by due time: 12 bytes a row. Rows that arrive make small
runs, and small ones are merged, so that an hour has few of them. Runs that have grown to
`RUN_ROWS_MAX` stay as they are: adding rows takes some milliseconds at most, however many there
are, and a tick is never held up. `pop` takes two kinds of rows:

- *fresh*: due, and not for longer than `LATE_MS`. They come first.
- *late*: due for longer, after an outage; oldest first, as many as the caller allows.

So a backlog of any size waits in here, not as work in progress, and does not hold up what is due
now. Nothing is popped before its time; an entry may be stale (cancelled, moved): the book knows.
"""

from collections import deque
from typing import NamedTuple

import numpy as np

LATE_MS = 2_000
LATE_STEP_MS = 1_000  # Late rows of one run that go before the others are looked at again.
RUNS_MAX = 8  # Small ones of one hour, before they are merged.
RUN_ROWS_MAX = 2**18


class DueRows(NamedTuple):
    """Rows of one hour that are due, by due time."""

    hour: int
    rows: np.ndarray
    due_ms: np.ndarray


class _DueRun:
    __slots__ = ("due_ms", "high", "late", "rows")

    def __init__(self, due_ms: np.ndarray, rows: np.ndarray) -> None:
        self.due_ms = due_ms
        self.rows = rows
        self.high = 0  # Rows below were popped, or are in `late`.
        self.late: deque[tuple[int, int]] = deque()

    @property
    def left(self) -> int:
        return len(self.rows) - self.high + sum(end - first for first, end in self.late)

    def advance(self, late_before_ms: int) -> None:
        """What has waited too long joins the late ones."""
        end = int(np.searchsorted(self.due_ms, late_before_ms, side="left"))
        if end > self.high:
            self.late.append((self.high, end))
            self.high = end

    def pieces(self) -> list[slice]:
        """Positions of everything not popped."""
        kept = [slice(first, end) for first, end in self.late]
        return [*kept, slice(self.high, len(self.rows))]


class Wheel:
    """The due times of all loaded hours."""

    def __init__(self) -> None:
        self._runs: dict[int, list[_DueRun]] = {}

    def __len__(self) -> int:
        """Rows not popped yet."""
        return sum(run.left for runs in self._runs.values() for run in runs)

    @property
    def size(self) -> int:
        """Bytes of its arrays; rows that were popped count until their run is empty."""
        return sum(
            run.due_ms.nbytes + run.rows.nbytes for runs in self._runs.values() for run in runs
        )

    def add(self, hour: int, rows: np.ndarray, due_ms: np.ndarray) -> None:
        """More rows of an hour, in any order."""
        order = np.argsort(due_ms, kind="stable")
        self.add_sorted(hour, rows[order], due_ms[order])

    def add_sorted(self, hour: int, rows: np.ndarray, due_ms: np.ndarray) -> None:
        """More rows of an hour, by due time."""
        if not len(rows):
            return
        runs = self._runs.setdefault(hour, [])
        runs.append(_DueRun(due_ms.astype(np.int64), rows.astype(np.uint32)))
        if sum(run.left < RUN_ROWS_MAX for run in runs) > RUNS_MAX:
            self._merge(runs)

    def _merge(self, runs: list[_DueRun]) -> None:
        """The smaller half of the small runs becomes one."""
        runs.sort(key=lambda run: run.left, reverse=True)
        keep = sum(run.left >= RUN_ROWS_MAX for run in runs) + RUNS_MAX // 2
        small = runs[keep:]
        due_ms, rows = [], []
        for run in small:
            for places in run.pieces():
                due_ms.append(run.due_ms[places])
                rows.append(run.rows[places])
        del runs[keep:]
        all_due, all_rows = np.concatenate(due_ms), np.concatenate(rows)
        order = np.argsort(all_due, kind="stable")
        runs.append(_DueRun(all_due[order], all_rows[order]))

    def drop(self, hour: int) -> None:
        self._runs.pop(hour, None)

    def next_due(self, hour: int | None = None) -> int | None:
        """When the next row is due; of one hour or of all."""
        runs = (
            [run for all_runs in self._runs.values() for run in all_runs]
            if hour is None
            else self._runs.get(hour, [])
        )
        dues = [int(run.due_ms[run.late[0][0]]) for run in runs if run.late]
        dues += [int(run.due_ms[run.high]) for run in runs if run.high < len(run.rows)]
        return min(dues, default=None)

    def pop(
        self, now_ms: int, *, fresh_max: int, late_max: int
    ) -> tuple[list[DueRows], list[DueRows]]:
        """(fresh, late) rows that are due at `now_ms`, at most so many."""
        for runs in self._runs.values():
            for run in runs:
                run.advance(now_ms - LATE_MS)
        fresh = self._pop_fresh(now_ms, fresh_max)
        late = self._pop_late(now_ms, late_max)
        for hour in [hour for hour, runs in self._runs.items() if not any(r.left for r in runs)]:
            del self._runs[hour]
        return fresh, late

    def _pop_fresh(self, now_ms: int, most: int) -> list[DueRows]:
        found: list[DueRows] = []
        for hour, runs in self._runs.items():
            for run in runs:
                end = int(np.searchsorted(run.due_ms, now_ms, side="right"))
                end = min(end, run.high + most)
                if end > run.high:
                    found.append(
                        DueRows(hour, run.rows[run.high : end], run.due_ms[run.high : end])
                    )
                    most -= end - run.high
                    run.high = end
        return found

    def _pop_late(self, now_ms: int, most: int) -> list[DueRows]:
        """The oldest first over all hours, to the second."""
        found: list[DueRows] = []
        while most > 0:
            heads = sorted(
                (int(run.due_ms[run.late[0][0]]), hour, at)
                for hour, runs in self._runs.items()
                for at, run in enumerate(runs)
                if run.late
            )
            if not heads or heads[0][0] > now_ms:  # The clock may have been set back.
                break
            oldest, hour, at = heads[0]
            until = max(oldest + LATE_STEP_MS, heads[1][0] if len(heads) > 1 else now_ms)
            run = self._runs[hour][at]
            first, end = run.late.popleft()
            due = int(np.searchsorted(run.due_ms[first:end], min(until, now_ms), side="right"))
            upto = first + min(due, most)
            found.append(DueRows(hour, run.rows[first:upto], run.due_ms[first:upto]))
            if upto < end:
                run.late.appendleft((upto, end))
            most -= upto - first
        return found
