"""The files of one delay server: open and recover them, schedule, load, decide, checkpoint, drop.

Everything here blocks and is called on the thread that owns the files in question:

    thread              does                                             owns
    tern-delay-wal      writes messages that arrive                      the message log's end
    tern-delay-schedule `schedule`, `load`, `checkpoint`, `remove`       the schedule logs' ends
    tern-delay-decide   `decide`                                         the dispatch logs' ends
    tern-delay-worker   `record` (reads)                                 nothing

What a start does: finish a removal that had begun, recover the message log, read the schedule logs
behind their checkpointed lengths and the dispatch logs whole, schedule what the message log has
more, with the hour length it was begun with. Then hours are loaded as they come near.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ternmq.batch.layout import STORED_SIZE_MAX, check_whole
from ternmq.batch.view import BatchView
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay import checkpoint as checkpoint_file
from ternmq.delay.checkpoint import Checkpoint
from ternmq.delay.dispatch_log import Decision, DispatchFormat, Kind, decode, encode
from ternmq.delay.hour_index import Entry, entry_of
from ternmq.delay.hour_log import HourLog
from ternmq.delay.hours import NEVER, Hour
from ternmq.delay.intent import IntentBook
from ternmq.delay.paths import DelayPaths, hour_name
from ternmq.delay.schedule_log import Scheduled, ScheduleLog
from ternmq.delay.wal import SEGMENT_SIZE_MAX, Wal, open_wal
from ternmq.storage.config import StorageConfig
from ternmq.storage.disk import Disk
from ternmq.storage.message_format import MessageFormat
from ternmq.storage.report import RecoveryReport

log = get_logger()

Record = TypeVar("Record")

SCHEDULE_SIZE = 8 * MIB  # Of the message log, in one step.
RECORDS_KEPT_SIZE = 64 * MIB  # Checked records of schedule logs kept in memory for dispatching.
PRODUCERS_EACH = 64 * MIB  # The producers file is written when the message log has grown so much.


@dataclass(slots=True)
class Deciding:
    """A decision on its way to the disk; `error` says why it did not get there."""

    hour: int
    decision: Decision
    error: TernError | None = None


class DelayStore:
    """Everything a delay server keeps on disk."""

    def __init__(self, disk: Disk, paths: DelayPaths) -> None:
        """Use `DelayStore.open`."""
        self.disk = disk
        self.paths = paths
        self.report = RecoveryReport()
        self.schedule_files = HourLog(disk, paths.schedule)
        self.dispatch_files = HourLog(disk, paths.dispatch)
        self.wal: Wal
        self.schedule_log: ScheduleLog
        self.hours: dict[int, Hour] = {}
        self.names: dict[int, str] = {}
        """Topic names by id, for people; filled in by whoever accepts messages."""
        self.known = Checkpoint()
        self.taken: dict[tuple[int, int], int] = {}
        """How far brokers' topics were taken, by producer: what `Taker` has made safe."""
        self.scheduled_to = 0
        self.undecided: dict[int, str] = {}
        """Hours of which it is not known any more what was decided, and why."""
        self._records: OrderedDict[tuple[int, int], BatchView] = OrderedDict()
        self._records_size = 0
        self._records_lock = threading.Lock()

    @property
    def failed(self) -> TernError | None:
        """Why nothing can be kept until a restart, if so."""
        return self.wal.messages.failed or self.schedule_files.failed or self.dispatch_files.failed

    def look(self) -> None:
        """Notice files that were removed under us; blocks. Any thread."""
        self.wal.source.look()
        self.schedule_files.look()
        self.dispatch_files.look()

    # Opening

    @classmethod
    def open(
        cls,
        disk: Disk,
        paths: DelayPaths,
        *,
        clock: Clock,
        hour_ms: int,
        segment_size: int,
        min_free: int,
    ) -> "DelayStore":
        """Open and recover. Raises `DiskFull` or `DiskFailed`."""
        store = cls(disk, paths)
        store._prepare()
        store.wal = open_wal(
            disk, paths, clock=clock, known=store.known, report=store.report,
            config=StorageConfig(
                segment_size=max(STORED_SIZE_MAX, min(segment_size, SEGMENT_SIZE_MAX)),
                min_free=min_free,
            ),
        )  # fmt: skip
        store._open_schedules()
        store._open_dispatches()
        store._catch_up(hour_ms)
        return store

    def _prepare(self) -> None:
        for directory in self.paths.directories():
            self.disk.mkdir(directory)
        for directory in self.paths.directories():
            # A name that a killed process made and did not sync is seen, and can still be lost.
            self.disk.sync_dir(directory)
        self._read_checkpoint()
        self.remove(list(self.known.dropping))

    def _read_checkpoint(self) -> None:
        found = False
        for path in (self.paths.checkpoint, self.paths.checkpoint_copy):
            if not self.disk.exists(path):
                continue
            found = True
            try:
                self.known = checkpoint_file.decode(self.disk.read(path))
                return
            except Corrupt as error:
                log.error("a delay checkpoint is bad", path=str(path), error=error.message)
                self.report.notes.append(error.message)
        if found:
            log.error("no delay checkpoint is good; what went out long ago may go out again")

    def _open_schedules(self) -> None:
        known = {hour.start: hour for hour in self.known.hours}
        for start in sorted(
            known.keys() - set(self.known.dropping) | {*self.schedule_files.found()}
        ):
            hour = self.hours[start] = Hour(start)
            before = known.get(start)
            if before is not None:
                hour.rows, hour.length = before.rows, before.length
                hour.wal_offset, hour.wal_pieces = before.wal_offset, before.wal_pieces
                hour.next_due = before.next_due
                hour.topics.update(dict(before.topics))
            found: _Whole[Entry] = _Whole(entry_of)
            lost = self.schedule_files.recover(
                start, start=hour.length, durable=hour.length, form=MessageFormat(),
                visit=found.visit, story=(self.paths.for_recovery(), self.report),
            )  # fmt: skip
            for entry in found.below(self.schedule_files.ends[start]):
                hour.grew(entry)
            if lost:
                log.error("messages of a schedule log are lost; they stay pending", hour=start)

    def _open_dispatches(self) -> None:
        orphans = [hour for hour in self.dispatch_files.found() if hour not in self.hours]
        self.dispatch_files.drop(orphans)  # A removal that was cut short: schedules go first.
        known = {hour.start: hour.decided for hour in self.known.hours if hour.decided}
        for start in sorted(known.keys() & self.hours.keys() | {*self.dispatch_files.found()}):
            hour = self.hours[start]
            decisions: _Whole[Decision] = _Whole(decode)
            lost = self.dispatch_files.recover(
                start, start=0, durable=known.get(start, 0), form=DispatchFormat(),
                visit=decisions.visit, story=(self.paths.for_recovery(), self.report),
            )  # fmt: skip
            book = IntentBook()
            book.grow(hour.rows)
            for decision in decisions.below(self.dispatch_files.ends[start]):
                book.apply(decision)
            hour.take_counts(book)
            hour.next_due = min([hour.next_due, *(due for due, _ in book.moves.values())])
            if lost:
                self._not_known(start, lost[0].start)
            elif book.intents:
                hour.book = book  # Wanted at once.
        for hour in self.hours.values():
            if hour.pending > 0 and hour.next_due >= NEVER:
                hour.next_due = hour.start  # What waits here could not be read before.

    def _not_known(self, start: int, offset: int) -> None:
        path = self.paths.dispatch / hour_name(start)
        self.undecided[start] = (
            f"{path} is damaged at {offset}: what was sent and what was cancelled of this hour is "
            "not known, so nothing of it is sent; bring the file back from a copy and restart"
        )
        log.error("decisions are lost; nothing of this hour is sent", hour=start, offset=offset)

    def _catch_up(self, hour_ms: int) -> None:
        """Schedule what the message log has more, as it was begun, then go on as it is set now."""
        self.schedule_log = ScheduleLog(self.schedule_files, hour_ms=self.known.hour_ms or hour_ms)
        for hour in self.hours.values():
            self.schedule_log.resume(hour)
        self.scheduled_to = max(self.known.scheduled, self.wal.messages.start_offset)
        while self.scheduled_to < self.wal.messages.safe_offset:
            step = self.schedule(frozenset())
            for start, entry in step.entries:
                self.hours.setdefault(start, Hour(start)).grew(entry)
            if step.error is not None:
                raise step.error
        self.schedule_log.hour_ms = hour_ms
        if hour_ms != self.known.hour_ms:
            # What follows is cut differently, so what is done must never be done again.
            self.checkpoint(
                msgspec.structs.replace(
                    self.known, clean=False, hour_ms=hour_ms, scheduled=self.scheduled_to,
                    wal_durable=self.wal.messages.safe_offset, dropping=[],
                    hours=[
                        hour.known(self.dispatch_files.synced.get(start, 0))
                        for start, hour in self.hours.items()
                    ],
                )
            )  # fmt: skip

    # Scheduling and loading

    def schedule(self, near: Container[int]) -> Scheduled:
        """Put the next batches of the message log into the schedule logs."""
        offset = self.scheduled_to
        data = self.wal.read(offset, SCHEDULE_SIZE)
        done = self.schedule_log.write(data, offset, near)
        self.scheduled_to = done.upto
        return done

    def read_book(self, start: int, rows: int) -> IntentBook:
        """The decisions about an hour, from its dispatch log; raises `Corrupt`."""
        if start in self.undecided:
            raise Corrupt(self.undecided[start])
        book = IntentBook()
        book.grow(rows)
        end = self.dispatch_files.ends.get(start, 0)
        at, form = 0, DispatchFormat()
        data = self.dispatch_files.read(start, 0, end) if end else b""
        view = memoryview(data)
        while at < end:
            size = form.size(view[at:])
            form.check(view[at : at + size], at)
            book.apply(decode(view[at : at + size]))
            at += size
        return book

    def record(self, start: int, offset: int, size: int) -> BatchView:
        """One checked record of a schedule log; raises `Corrupt`. Any thread."""
        key = (start, offset)
        with self._records_lock:
            kept = self._records.get(key)
            if kept is not None:
                self._records.move_to_end(key)
                return kept
        data = self.schedule_files.read(start, offset, size)
        check_whole(data, at_offset=offset)
        view = BatchView(data)
        with self._records_lock:
            if key not in self._records:
                self._records[key] = view
                self._records_size += size
                while self._records_size > RECORDS_KEPT_SIZE and len(self._records) > 1:
                    _, old = self._records.popitem(last=False)
                    self._records_size -= old.size
        return view

    # Deciding

    def decide(self, items: list[Deciding]) -> None:
        """Write decisions, and sync those that must be safe; errors are told item by item."""
        by_hour: dict[int, list[Deciding]] = {}
        for item in items:
            by_hour.setdefault(item.hour, []).append(item)
        for hour, mine in by_hour.items():
            try:
                self._decide(hour, mine)
            except TernError as error:
                for item in mine:
                    item.error = error

    def _decide(self, hour: int, items: list[Deciding]) -> None:
        files = self.dispatch_files
        at, durable = files.ends.get(hour, 0), files.synced.get(hour, 0)
        records: list[bytes] = []
        for item in items:
            record = encode(item.decision, offset=at, durable_to=durable)
            item.decision.offset = at
            at += len(record)
            records.append(record)
        files.append(hour, records)
        if any(item.decision.kind is not Kind.DONE for item in items):
            files.sync(hour)

    # Checkpoints

    def behind(self, now: Checkpoint) -> list[int]:
        """Hours that must be synced before this checkpoint is true."""
        files = self.schedule_files
        return [hour.start for hour in now.hours if files.behind(hour.start, hour.length)]

    def checkpoint(self, now: Checkpoint) -> None:
        """Sync what was scheduled, then write down how far everything is."""
        if self.failed is not None:
            return
        self.schedule_files.sync_many(self.behind(now))
        if now.clean or self.wal.messages.safe_offset - self.wal.producers_to >= PRODUCERS_EACH:
            covers = self.wal.messages.safe_offset
            self.disk.write_atomic(self.paths.producers, self.wal.producers.snapshot(covers))
            self.wal.producers_to = covers
        content = checkpoint_file.encode(now)
        # Nothing else knows which messages of the message log went out and were removed.
        for path in (self.paths.checkpoint, self.paths.checkpoint_copy):
            self.disk.write_atomic(path, content)
        self.known = now

    def trim(self) -> None:
        """Remove what of the message log is scheduled and not needed to know its producers."""
        self.wal.forget_before(min(self.known.scheduled, self.wal.producers_to))

    def remove(self, hours: list[int]) -> None:
        """Remove hours that a checkpoint says are dropped; schedules first, so that a crash in
        between never leaves rows without the knowledge that they are settled."""
        self.schedule_files.drop(hours)
        self.dispatch_files.drop(hours)
        with self._records_lock:
            for key in [key for key in self._records if key[0] in set(hours)]:
                self._records_size -= self._records.pop(key).size

    def close(self) -> None:
        self.wal.source.close()
        self.schedule_files.close()
        self.dispatch_files.close()


class _Whole(Generic[Record]):
    """Whole records that recovery met; those behind a torn one do not count."""

    def __init__(self, parse: Callable[[bytes], Record]) -> None:
        self._parse = parse
        self._found: list[tuple[int, Record]] = []

    def visit(self, offset: int, data: memoryview, problem: Corrupt | None) -> None:
        if problem is None:
            self._found.append((offset, self._parse(bytes(data))))

    def below(self, end: int) -> list[Record]:
        return [record for offset, record in self._found if offset < end]
