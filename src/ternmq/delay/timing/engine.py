"""The state of a delay server: which hours there are, what is due, what becomes of it.

Lives on the event loop and never blocks: the blocking half of each step is in `store`, its result
is handed in here. One order of steps, whoever drives them (a server with threads, a test without):

    store.schedule -> scheduled        rows of the message log are in their hours
    begin_loading, store.load -> loaded    an hour comes near: its rows go onto the wheel
    tick                               rows that are due wait for a worker
    next_work, gather -> intend        a worker takes some, a synced intent decides
    sent: arrived | refused            the broker has them, or will not have them: they rest

The ledger is exact at every moment: accepted = pending + dispatched + cancelled.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from ternmq.core.log import get_logger
from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.hours.decision_book import MOVED, PENDING, DecisionBook
from ternmq.delay.hours.hour import NEVER, Hour
from ternmq.delay.hours.hour_index import HourIndex, IndexedRows, by_due
from ternmq.delay.store.schedule_log import Loaded, Scheduled
from ternmq.delay.store.store import Deciding, DelayStore
from ternmq.delay.timing.paused_topics import PausedTopics
from ternmq.delay.timing.ready import Batch, ReadyRows
from ternmq.delay.timing.wheel import Wheel

log = get_logger()

READY_MAX = 200_000  # Rows between wheel and intent; beyond, they wait on the wheel.
LATE_RATE = 100_000  # Late rows a second, so that what is due now finds room.
WORK_ROWS_MAX = 16_384
TURN_MS = 100  # Rows go out in order of their due times, to so many milliseconds.


@dataclass(slots=True)
class Work:
    """Rows of one topic in one hour that a worker holds."""

    hour: int
    topic_id: int
    rows: np.ndarray
    """By due time, to `TURN_MS`."""
    fragment: int = -1
    due_ms: int = 0
    """When the first of them was due."""
    late: bool = False


class RowPlace(NamedTuple):
    """Rows of one record."""

    hour: int
    offset: int
    size: int
    first_row: int
    rows: np.ndarray


class DelayTotals(NamedTuple):
    accepted: int
    pending: int
    dispatched: int
    cancelled: int


class Engine:
    """Everything but files and sockets."""

    def __init__(self, store: DelayStore, *, hour_ms: int, fragments: int) -> None:
        self.store = store
        store.led = True
        self.hours = store.hours
        self.hour_ms = hour_ms
        self.names = store.names
        self.wheel = Wheel()
        self.ready = ReadyRows(fragments)
        self.parked = PausedTopics()
        self.scheduled_to = store.scheduled_to
        self.stored_at_ms = store.stored_at_ms
        self.unresolved: list[tuple[int, Decision]] = []
        """Intents of an earlier life: to be sent again before anything else."""
        self._late_tokens = 0.0
        self._ticked_at: float | None = None
        self.requested: set[int] = set()
        """Hours that somebody asks about."""
        self._near: set[int] = set()
        """Hours that are loaded, or are being loaded."""
        self._quiet_until = 0
        """No hour is to be loaded for rows due before this; there are thousands of hours."""

    # Scheduling and loading

    def near(self) -> frozenset[int]:
        """Hours whose new rows must be synced at once."""
        return frozenset(self._near)

    def scheduled(self, step: Scheduled) -> None:
        """Rows were added to schedule logs."""
        self.grew(step.entries)
        self.scheduled_upto(step)

    def grew(self, entries: Sequence[tuple[int, IndexedRows]]) -> None:
        """Records were added; those of a large step come in parts, then `scheduled_upto`."""
        by_hour: dict[int, list[IndexedRows]] = {}
        for start, entry in entries:
            hour = self.hours.get(start)
            if hour is None:
                hour = self.hours[start] = Hour(start)
            hour.grew(entry)
            by_hour.setdefault(start, []).append(entry)
        for start, mine in by_hour.items():
            hour = self.hours[start]
            hour.known(
                self._decided(start)
            )  # Now, so that a snapshot need not do it for all of them at once.
            if hour.loaded:
                self._take_in(hour, mine, *by_due(mine))
            else:
                self._quiet_until = min(self._quiet_until, hour.next_due)

    def scheduled_upto(self, step: Scheduled) -> None:
        self.scheduled_to = step.upto
        self.stored_at_ms = max(self.stored_at_ms, step.stored_at_ms)

    def wanted(self, before_ms: int, without: Collection[int] = ()) -> Hour | None:
        """The next hour to be loaded: it has open intents, or rows due before `before_ms`."""
        if before_ms <= self._quiet_until and not self.requested:
            return None
        waiting = [
            hour
            for hour in self.hours.values()
            if not hour.loaded
            and hour.start not in without
            and (
                hour.loading
                or hour.start in self.requested
                or ((hour.next_due < before_ms or hour.book is not None) and hour.pending > 0)
            )
        ]
        if not waiting and not without:
            sleeping = [hour.next_due for hour in self.hours.values() if not hour.loaded]
            self._quiet_until = min(sleeping, default=NEVER)
        return min(waiting, key=lambda hour: (not hour.loading, hour.next_due), default=None)

    def begin_loading(self, hour: Hour, book: DecisionBook) -> None:
        self._near.add(hour.start)
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
            self.wheel.add_sorted(hour.start, rows, due_ms)
            return
        self.wheel.add_sorted(hour.start, rows[plain], due_ms[plain])
        moved = [row for row in rows[states == (PENDING | MOVED)].tolist() if row in book.moves]
        times = np.array([book.moves[row][0] for row in moved], np.int64)
        self.wheel.add(hour.start, np.array(moved, np.uint32), times)

    def unload(self, after_ms: int) -> None:
        """Let go of hours in which nothing happens before `after_ms`."""
        for hour in [self.hours[start] for start in self._near]:
            if not hour.loaded or hour.waiting or hour.aside or hour.start in self.requested:
                continue
            if hour.book is None or hour.book.intents or hour.book.promised or hour.deciding:
                continue
            next_due = self._next_due(hour)
            if next_due >= after_ms:
                hour.next_due = next_due
                hour.index = hour.book = None
                self.wheel.drop(hour.start)
                self._near.discard(hour.start)
                self._quiet_until = min(self._quiet_until, next_due)

    def _next_due(self, hour: Hour) -> int:
        due = self.wheel.next_due(hour.start)
        return NEVER if due is None else due

    # Firing

    def tick(self, now_ms: int, monotonic: float) -> int:
        """Rows that are due get ready; returns how many."""
        passed = 0.0 if self._ticked_at is None else monotonic - self._ticked_at
        self._ticked_at = monotonic
        self._late_tokens = min(LATE_RATE, self._late_tokens + passed * LATE_RATE)
        late_room = READY_MAX // 2 - self.ready.late_rows
        fresh, late = self.wheel.pop(
            now_ms,
            fresh_max=max(0, READY_MAX - self.ready.rows),
            late_max=max(0, min(int(self._late_tokens) + 1, late_room)),
        )
        count = sum(self._unpark(batch) for batch in self.parked.over(monotonic))
        for kind, found in ((False, fresh), (True, late)):
            for due in found:
                hour = self.hours[due.hour]
                assert hour.book is not None
                free = hour.book.pending(due.rows, due.due_ms)
                rows = in_turn(due.rows[free], due.due_ms[free])
                first_ms = int(due.due_ms.min(initial=now_ms))
                count += self._make_ready(hour, rows, due_ms=first_ms, late=kind)
                self._late_tokens -= len(rows) if kind else 0
        return count

    def _make_ready(self, hour: Hour, rows: np.ndarray, *, due_ms: int, late: bool) -> int:
        if not len(rows):
            return 0
        assert hour.index is not None
        topics = hour.index.topics_of(rows)
        for number in np.unique(topics).tolist():
            mine = rows[topics == number]
            hour.waiting += len(mine)
            batch = Batch(hour.start, hour.index.topic_ids[number], mine, due_ms, late)
            (self.parked if self.parked.rests(batch.topic_id) else self.ready).put(batch)
        return len(rows)

    def _unpark(self, batch: Batch) -> int:
        self.ready.put(batch)
        return len(batch.rows)

    def next_work(self, now_ms: int) -> Work | None:
        """Rows for a worker; nobody else decides about them until it says how it went."""
        while (taken := self.ready.take(WORK_ROWS_MAX)) is not None:
            fragment, batch = taken
            if self.parked.rests(batch.topic_id):
                self.parked.put(batch)
                self.ready.done(fragment)
                continue
            hour = self.hours[batch.hour]
            assert hour.book is not None
            rows = hour.book.hold(_once(batch.rows), now_ms)
            hour.waiting -= len(batch.rows) - len(rows)
            if len(rows):
                return Work(batch.hour, batch.topic_id, rows, fragment, batch.due_ms, batch.late)
            self.ready.done(fragment)
        return None

    def places(self, start: int, rows: np.ndarray) -> list[RowPlace]:
        """Which records to read for these rows, in their order."""
        index = self.hours[start].index
        assert index is not None
        records = index.records_of(rows)
        breaks = np.flatnonzero(np.diff(records)) + 1
        firsts = records[np.r_[0, breaks]].tolist()
        return [
            RowPlace(start, *index.place(record), mine)
            for record, mine in zip(firsts, np.split(rows, breaks), strict=True)
        ]

    def leave(self, work: Work, rows: np.ndarray) -> None:
        """These rows of a work did not fit: they are the next ones of their kind."""
        hour = self.hours[work.hour]
        assert hour.book is not None
        hour.book.free(rows)
        self.ready.put_back(Batch(work.hour, work.topic_id, rows, work.due_ms, work.late))

    def give_back(self, work: Work, rows: np.ndarray, now_ms: int) -> None:
        """Nothing was decided about these rows of a work: they are due again at once."""
        hour = self.hours[work.hour]
        assert hour.book is not None
        hour.book.free(rows)
        hour.waiting -= len(rows)
        self._again(hour, rows, now_ms)

    def _again(self, hour: Hour, rows: np.ndarray, now_ms: int) -> None:
        assert hour.book is not None
        due_ms = np.full(len(rows), now_ms, np.int64)
        for at, row in enumerate(rows.tolist() if hour.book.moves else ()):
            due_ms[at] = hour.book.due_of(row, now_ms)
        self.wheel.add(hour.start, rows, due_ms)

    def set_aside(self, work: Work, rows: np.ndarray) -> None:
        """These rows cannot be read: they stay pending and are tried again after a restart."""
        self.hours[work.hour].waiting -= len(rows)
        self.hours[work.hour].aside += len(rows)

    # What was decided

    def decided(self, item: Deciding, now_ms: int) -> None:
        """A decision is on disk, or is not (`item.error`)."""
        hour, decision = self.hours[item.hour], item.decision
        if decision.kind is DecisionKind.GONE:
            if item.error is None:
                self._leave(hour)
            return
        book = hour.book
        assert book is not None
        if item.error is None:
            intent = book.intents.get(decision.value)
            book.apply(decision)
            if decision.kind is DecisionKind.MOVED:
                times = np.full(len(decision.rows), decision.value, np.int64)
                self.wheel.add(hour.start, decision.rows, times)
                hour.next_due = min(hour.next_due, decision.value)
            elif decision.kind is DecisionKind.RELEASED and intent is not None:
                self._rest(hour, intent, now_ms)
            elif decision.kind is DecisionKind.INTENT:
                hour.waiting -= len(decision.rows)

    def _rest(self, hour: Hour, intent: Decision, now_ms: int) -> None:
        """A broker did not want these rows."""
        if self.parked.rests(intent.topic_id):
            hour.waiting += len(intent.rows)
            self.parked.put(Batch(hour.start, intent.topic_id, intent.rows, now_ms))
        else:
            self._again(hour, intent.rows, now_ms)

    def undecided(self, hour: Hour, rows: np.ndarray, due_ms: int) -> None:
        """A change of these rows could not be written: they are due when they were. The wheel may
        have come past them meanwhile."""
        assert hour.book is not None
        hour.book.free(rows)
        self.wheel.add(hour.start, rows, np.full(len(rows), due_ms, np.int64))

    def dispatching(self) -> dict[str, int]:
        """Rows of open intents, by the broker group that they are bound for."""
        counts: dict[str, int] = {}
        for hour in self.hours.values():
            for intent in hour.book.intents.values() if hour.book is not None else ():
                counts[intent.group] = counts.get(intent.group, 0) + len(intent.rows)
        return counts

    def is_open(self, start: int, intent: Decision) -> bool:
        """Whether nobody has said yet what became of this intent."""
        hour = self.hours.get(start)
        return hour is not None and hour.book is not None and intent.offset in hour.book.intents

    # Counting

    def ledger(self) -> dict[int, DelayTotals]:
        """Per topic: accepted = pending + dispatched + cancelled."""
        store = self.store
        dispatched, cancelled = store.gone_dispatched.copy(), store.gone_cancelled.copy()
        for hour in self.hours.values():
            dispatched.update(hour.dispatched)
            cancelled.update(hour.cancelled)
        return {
            topic_id: DelayTotals(
                accepted,
                accepted - dispatched[topic_id] - cancelled[topic_id],
                dispatched[topic_id],
                cancelled[topic_id],
            )
            for topic_id, accepted in store.wal.counts.ends.items()
        }

    # Checkpoints and clean-up

    def leaving(self, now_ms: int) -> list[tuple[int, Decision]]:
        """Hours that are over, and the decision that they are: so other members let them go too,
        and no master of them gives such an hour a row again."""
        value = self.store.known.stored_at_ms
        return [
            (start, Decision(kind=DecisionKind.GONE, at_ms=now_ms, value=value))
            for start, hour in self.hours.items()
            if self._over(hour)
        ]

    def _leave(self, hour: Hour) -> None:
        del self.hours[hour.start]
        self._near.discard(hour.start)
        self.wheel.drop(hour.start)
        self.store.gone(hour)

    def snapshot(self, now_ms: int, *, clean: bool = False) -> DelayCheckpoint:
        """How far everything is, and which hours are gone."""
        messages = self.store.messages
        if self.scheduled_to == messages.safe_offset and messages.idle:
            messages.stored_at_ms = max(messages.stored_at_ms, now_ms)
            self.stored_at_ms = max(self.stored_at_ms, messages.stored_at_ms)
        return msgspec.structs.replace(
            self.store.snapshot(clean=clean),
            scheduled=self.scheduled_to,
            stored_at_ms=self.stored_at_ms,
        )

    def _decided(self, start: int) -> int:
        """How much of an hour's dispatch log is on disk."""
        return self.store.dispatch_files.synced.get(start, 0)

    def _over(self, hour: Hour) -> bool:
        """All of it is settled, and a durable mark says that it gets no more rows."""
        known = self.store.known
        return (
            hour.start + self.hour_ms <= known.stored_at_ms
            and hour.wal_offset < known.scheduled
            and not (hour.loading or hour.waiting or hour.deciding)
            and hour.start not in self.requested
            and hour.pending == 0
        )

    def dropped(self, hours: list[int]) -> None:
        """Their files are gone."""
        self.store.dropping.difference_update(hours)


def in_turn(rows: np.ndarray, due_ms: np.ndarray) -> np.ndarray:
    """Rows by due time to `TURN_MS`, and as they lie in the file within that."""
    turns = due_ms // TURN_MS
    if len(turns) and turns.min() == turns.max():
        return np.sort(rows)
    ordered: np.ndarray = rows[np.lexsort((rows, turns))]
    return ordered


def _once(rows: np.ndarray) -> np.ndarray:
    """The same rows in the same order, each once: one that was moved may be there twice."""
    _, first = np.unique(rows, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]
