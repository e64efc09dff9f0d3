"""The state of a delay server that leads: what is due, what a worker holds, what was decided.

Lives on the event loop and never blocks: the blocking half of each step is in `store`, its result
is handed in here. One order of steps, whoever drives them (a server with threads, a test without):

    LeadingStore.schedule -> scheduled        rows of the message log are in their hours
    near.begin, LeadingStore.load -> near.loaded    an hour comes near: its rows go onto the wheel
    tick                                      rows that are due wait for a worker
    next_work, collect -> decided             a worker takes some, a synced intent decides
    sent: done | released                     the broker has them, or will not have them: they rest

The ledger is exact at every moment: accepted = pending + dispatched + cancelled.
"""

from collections.abc import Sequence

import numpy as np

from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.hours.hour import Hour
from ternmq.delay.hours.hour_index import IndexedRows
from ternmq.delay.hours.hours import DelayTotals
from ternmq.delay.store.hour_owners import LeadingStore
from ternmq.delay.store.journal import Deciding
from ternmq.delay.store.schedule_log import Scheduled
from ternmq.delay.timing.dispatch_work import DispatchWork, RowPlace, in_turn, once
from ternmq.delay.timing.loaded_hours import LoadedHours
from ternmq.delay.timing.paused_topics import PausedTopics
from ternmq.delay.timing.ready import Batch, ReadyRows
from ternmq.delay.timing.wheel import Wheel

READY_MAX = 200_000  # Rows between wheel and intent; beyond, they wait on the wheel.
LATE_RATE = 100_000  # Late rows a second, so that what is due now finds room.
WORK_ROWS_MAX = 16_384


class Engine:
    """Everything but files and sockets; the owner of the hours while this member leads."""

    def __init__(self, leading: LeadingStore, *, hour_ms: int, fragments: int) -> None:
        self.leading = leading
        self.store = leading.store
        self.hours = leading.hours
        self.hour_ms = hour_ms
        self.wheel = Wheel()
        self.near = LoadedHours(self.hours, self.wheel)
        self.ready = ReadyRows(fragments)
        self.paused = PausedTopics()
        self._late_tokens = 0.0
        self._ticked_at: float | None = None

    # Scheduling

    def scheduled(self, step: Scheduled) -> None:
        """Rows were added to schedule logs."""
        self.grew(step.entries)
        self.hours.scheduled_upto(step.upto, step.stored_at_ms)

    def grew(self, entries: Sequence[tuple[int, IndexedRows]]) -> None:
        """Records were added; those of a large step come in parts, then `hours.scheduled_upto`."""
        by_hour: dict[int, list[IndexedRows]] = {}
        for start, entry in entries:
            self.hours.grew(start, entry)
            by_hour.setdefault(start, []).append(entry)
        for start, mine in by_hour.items():
            hour = self.hours[start]
            # Now, so that a snapshot need not do it for all of them at once.
            hour.known(self.store.dispatch_files.synced.get(start, 0))
            self.near.grew(hour, mine)

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
        count = 0
        for batch in self.paused.over(monotonic):
            self.ready.put(batch)
            count += len(batch.rows)
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
            (self.paused if self.paused.has(batch.topic_id) else self.ready).put(batch)
        return len(rows)

    def next_work(self, now_ms: int) -> DispatchWork | None:
        """Rows for a worker; they are busy until it decided about them or gave them back."""
        while (taken := self.ready.take(WORK_ROWS_MAX)) is not None:
            fragment, batch = taken
            if self.paused.has(batch.topic_id):
                self.paused.put(batch)
                self.ready.done(fragment)
                continue
            hour = self.hours[batch.hour]
            assert hour.book is not None
            rows = hour.book.hold(once(batch.rows), now_ms)
            hour.waiting -= len(batch.rows) - len(rows)
            if len(rows):
                return DispatchWork(
                    batch.hour, batch.topic_id, rows, fragment, batch.due_ms, batch.late
                )
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

    def leave(self, work: DispatchWork, rows: np.ndarray) -> None:
        """These rows of a work did not fit: they are the next ones of their kind."""
        hour = self.hours[work.hour]
        assert hour.book is not None
        hour.book.free(rows)
        self.ready.put_back(Batch(work.hour, work.topic_id, rows, work.due_ms, work.late))

    def give_back(self, work: DispatchWork, rows: np.ndarray, now_ms: int) -> None:
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

    def set_aside(self, work: DispatchWork, rows: np.ndarray) -> None:
        """These rows cannot be read: they stay pending and are tried again after a restart."""
        hour = self.hours[work.hour]
        assert hour.book is not None
        hour.book.free(rows)
        hour.waiting -= len(rows)
        hour.aside.update(rows.tolist())

    @property
    def aside(self) -> int:
        """Rows that were due and could not be read."""
        return sum(len(hour.aside) for hour in self.hours.values())

    # What was decided

    def dropped(self, work: DispatchWork) -> None:
        """All rows of a work are cancelled."""
        self.hours[work.hour].waiting -= len(work.rows)

    def decided(self, item: Deciding, now_ms: int) -> None:
        """A decision is on disk, or is not (`item.error`)."""
        hour, decision = self.hours[item.hour], item.decision
        if decision.kind is DecisionKind.GONE:
            if item.error is None:
                self.hours.leave(hour.start)
                self.near.left(hour.start)
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
                self._released(hour, intent, now_ms)
            elif decision.kind is DecisionKind.INTENT:
                hour.waiting -= len(decision.rows)
            elif decision.kind is DecisionKind.CANCELLED and hour.aside:
                hour.aside.difference_update(decision.rows.tolist())

    def _released(self, hour: Hour, intent: Decision, now_ms: int) -> None:
        """A broker did not want these rows."""
        if self.paused.has(intent.topic_id):
            hour.waiting += len(intent.rows)
            self.paused.put(Batch(hour.start, intent.topic_id, intent.rows, now_ms))
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
        """Whether this intent is neither done nor released."""
        hour = self.hours.get(start)
        return hour is not None and hour.book is not None and intent.offset in hour.book.intents

    # Counting

    def ledger(self) -> dict[int, DelayTotals]:
        """Per topic: accepted = pending + dispatched + cancelled."""
        return self.hours.ledger(self.store.wal.counts.ends)

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

    def snapshot(self, now_ms: int, *, clean: bool = False) -> DelayCheckpoint:
        """How far everything is, and which hours are gone."""
        messages, hours = self.store.messages, self.hours
        if hours.scheduled_to == messages.safe_offset and messages.idle:
            messages.not_before(now_ms)
            hours.stored_at_ms = max(hours.stored_at_ms, messages.stored_at_ms)
        return self.store.checkpoints.snapshot(hours, clean=clean)

    def _over(self, hour: Hour) -> bool:
        """All of it is settled, and a durable mark says that it gets no more rows."""
        known = self.store.known
        return (
            hour.start + self.hour_ms <= known.stored_at_ms
            and hour.wal_offset < known.scheduled
            and not (hour.loading or hour.waiting or hour.deciding)
            and hour.start not in self.near.requested
            and hour.pending == 0
        )
