"""The hours that are loaded: chosen in time, put onto the wheel, unloaded when quiet.

An hour is loaded when rows of it are due soon, when it has open intents, or when a command asks
about its rows. Loading takes several steps: the scheduling thread reads (`LeadingStore.load`), and
what it read is taken in here, on the event loop. Never blocks, and never changes what is decided.
"""

from collections.abc import Collection

import numpy as np

from ternmq.core.log import get_logger
from ternmq.delay.formats.decision import Decision
from ternmq.delay.hours.decision_book import MOVED, PENDING, DecisionBook
from ternmq.delay.hours.hour import NEVER, Hour
from ternmq.delay.hours.hour_index import HourIndex, IndexedRows, by_due
from ternmq.delay.hours.hours import Hours
from ternmq.delay.store.schedule_log import Loaded
from ternmq.delay.timing.wheel import Wheel

log = get_logger()


class LoadedHours:
    """Which hours are loaded, are being loaded, or should be."""

    def __init__(self, hours: Hours, wheel: Wheel) -> None:
        self._hours = hours
        self._wheel = wheel
        self.unresolved: list[tuple[int, Decision]] = []
        """Intents of an earlier life, of hours that were loaded: to be sent again before anything
        else."""
        self.requested: set[int] = set()
        """Hours that a command asks about."""
        self._starts: set[int] = set()
        """Hours that are loaded, or are being loaded."""
        self._quiet_until = 0
        """No hour is to be loaded for rows due before this; there are thousands of hours."""

    def starts(self) -> frozenset[int]:
        """Hours whose new rows must be synced at once."""
        return frozenset(self._starts)

    def grew(self, hour: Hour, entries: list[IndexedRows]) -> None:
        """Records were added to an hour."""
        if hour.loaded:
            self._take_in(hour, entries, *by_due(entries))
        else:
            self._quiet_until = min(self._quiet_until, hour.next_due)

    def left(self, start: int) -> None:
        """An hour is gone."""
        self._starts.discard(start)
        self._wheel.drop(start)

    def wanted(self, before_ms: int, without: Collection[int] = ()) -> Hour | None:
        """The next hour to be loaded: it has open intents, or rows due before `before_ms`."""
        if before_ms <= self._quiet_until and not self.requested:
            return None
        waiting = [
            hour
            for hour in self._hours.values()
            if not hour.loaded
            and hour.start not in without
            and (
                hour.loading
                or hour.start in self.requested
                or ((hour.next_due < before_ms or hour.book is not None) and hour.pending > 0)
            )
        ]
        if not waiting and not without:
            sleeping = [hour.next_due for hour in self._hours.values() if not hour.loaded]
            self._quiet_until = min(sleeping, default=NEVER)
        return min(waiting, key=lambda hour: (not hour.loading, hour.next_due), default=None)

    def begin(self, hour: Hour, book: DecisionBook) -> None:
        self._starts.add(hour.start)
        self._quiet_until = 0
        hour.index = HourIndex()
        hour.damaged = 0
        hour.book = book
        hour.take_counts(book)
        hour.loading = True

    def loaded(self, hour: Hour, step: Loaded) -> None:
        """Some records of an hour were read; at the end it takes part."""
        hour.damaged += step.damaged
        self._take_in(hour, step.entries, step.rows, step.due_ms)
        if hour.index is not None and not step.whole:
            hour.index.end = step.upto
        if step.whole:
            hour.loading = False
            assert hour.book is not None
            next_due = self._next_due(hour)
            # Rows of open intents are not on the wheel, and may be released.
            hour.next_due = min(hour.next_due, next_due) if hour.book.intents else next_due
            self.unresolved += [(hour.start, intent) for intent in hour.book.intents.values()]
            log.info("hour loaded", hour=hour.start, rows=hour.rows, pending=hour.pending)

    def _take_in(
        self, hour: Hour, entries: list[IndexedRows], rows: np.ndarray, due_ms: np.ndarray
    ) -> None:
        index, book = hour.index, hour.book
        assert index is not None
        assert book is not None
        for entry in entries:
            index.add(entry)
        book.grow(index.rows)
        states = book.states[rows]
        plain = states == PENDING
        if bool(plain.all()):
            self._wheel.add_sorted(hour.start, rows, due_ms)
            return
        self._wheel.add_sorted(hour.start, rows[plain], due_ms[plain])
        moved = [row for row in rows[states == (PENDING | MOVED)].tolist() if row in book.moves]
        times = np.array([book.moves[row][0] for row in moved], np.int64)
        self._wheel.add(hour.start, np.array(moved, np.uint32), times)

    def unload(self, after_ms: int) -> None:
        """Let go of hours in which nothing happens before `after_ms`."""
        for hour in [self._hours[start] for start in self._starts]:
            if not hour.loaded or hour.waiting or hour.aside or hour.start in self.requested:
                continue
            if hour.book is None or hour.book.intents or hour.book.promised or hour.deciding:
                continue
            next_due = self._next_due(hour)
            if next_due >= after_ms:
                hour.next_due = next_due
                hour.index = hour.book = None
                self._wheel.drop(hour.start)
                self._starts.discard(hour.start)
                self._quiet_until = min(self._quiet_until, next_due)

    def _next_due(self, hour: Hour) -> int:
        due = self._wheel.next_due(hour.start)
        return NEVER if due is None else due
