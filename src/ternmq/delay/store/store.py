"""The files of one delay server: open and recover them, schedule, load, decide, checkpoint, drop.

Everything here blocks and is called on the thread that owns the files in question:

    thread              does                                             owns
    tern-delay-wal      writes messages that arrive                      the message log's end
    tern-delay-decide   writes decisions                                 the journal's end
    tern-delay-schedule `schedule`, `derive`, `load`, `checkpoint`,      the ends of schedule and
                        `remove`                                         dispatch logs
    tern-delay-worker   `record` (reads)                                 nothing

Two logs are what happened, and are what replicas copy: the message log and the decisions journal.
Everything else is made of their safe parts, in the same way on every member: schedule logs of the
first, dispatch logs of the second, a decision not before the messages that it may be about. A start
(see `loader`) and a replica that comes to lead do what is left of that (`catch_up`). Then hours
are loaded as they come near.
"""

from collections import Counter
from collections.abc import Container

from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.batch.view import BatchView
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.checkpoint import DelayCheckpoint, KnownTopic
from ternmq.delay.formats.decision import Decision, DecisionKind, DispatchFormat, decode
from ternmq.delay.formats.paths import DelayPaths, hour_name
from ternmq.delay.hours.decision_book import DecisionBook
from ternmq.delay.hours.hour import NEVER, Hour
from ternmq.delay.store.epochs import DelayEpochs
from ternmq.delay.store.journal import NOT_FOR_HOURS, Deciding
from ternmq.delay.store.loader import Opened, open_files, open_journal, open_messages, unknown
from ternmq.delay.store.record_cache import RecordCache
from ternmq.delay.store.schedule_log import Scheduled, ScheduleLog
from ternmq.delay.store.wal import SEGMENT_SIZE_MAX
from ternmq.storage.config import StorageConfig
from ternmq.storage.files.disk import Disk
from ternmq.storage.log.leader_epochs import MESSAGES, PULLS, Starts
from ternmq.storage.messages.message_log import MessageLog

__all__ = ["Deciding", "DelayStore"]

log = get_logger()

SCHEDULE_SIZE = 8 * MIB  # Of the message log, in one step.
PRODUCERS_EACH = 64 * MIB  # The producers file is written when the message log has grown so much.
DECISIONS = PULLS
"""The journal is the second log of a delay server, as the pull log is a broker's."""


class DelayStore:
    """Everything a delay server keeps on disk."""

    def __init__(
        self, opened: Opened, *, clock: Clock, hour_ms: int, config: StorageConfig, suffix: bool
    ) -> None:
        """Use `DelayStore.open`."""
        self.disk = opened.disk
        self.paths = opened.paths
        self.report = opened.report
        self.schedule_files = opened.schedule_files
        self.dispatch_files = opened.dispatch_files
        self.wal = open_messages(opened, clock=clock, config=config, suffix=suffix)
        self.decisions = open_journal(opened, suffix=suffix)
        self._membership = DelayEpochs(opened.history, self.wal, self.decisions)
        self._clock = clock
        self._replicated = suffix
        self.hours = opened.hours
        self.hour_ms = hour_ms
        """As it is set here; what is scheduled is cut as `schedule_log.hour_ms` says."""
        self.led = False
        """An engine decides here, and knows by itself which hours are gone."""
        self.names: dict[int, str] = {}
        """Topic names by id, for people; filled in by whoever accepts messages."""
        self.known = opened.known
        self.taken: dict[tuple[int, int], int] = {
            (start, random): upto for start, random, upto in self.known.taken
        }
        """How far brokers' topics were taken, by producer: what `Taker` has made safe."""
        self.gone_dispatched: Counter[int] = Counter()
        self.gone_cancelled: Counter[int] = Counter()
        for topic in self.known.topics:
            self.names[topic.id] = topic.name
            self.gone_dispatched[topic.id] = topic.dispatched
            self.gone_cancelled[topic.id] = topic.cancelled
        self.dropping: set[int] = set()
        """Hours that are gone and whose files may still be there."""
        self.undecided = opened.undecided
        """Hours of which it is not known any more what was decided, and why."""
        self.needed: dict[int, int] = {}
        """From where on other members need the logs."""
        self.holding: dict[int, frozenset[int]] = {}
        """Hours whose files somebody copies, see `bootstrap`."""
        self.schedule_log = ScheduleLog(self.schedule_files, hour_ms=self.known.hour_ms or hour_ms)
        for hour in self.hours.values():
            self.schedule_log.resume(hour)
        self.scheduled_to = max(self.known.scheduled, self.messages.start_offset)
        self.stored_at_ms = self.known.stored_at_ms
        self.derived_to = max(self.known.decided_to, self.decisions.start_offset)
        self.settled_to = self.derived_to
        """The journal below this lies in dispatch logs, on disk."""
        self.begun = self.known.begun
        self._gone_before = self.known.gone_before
        self.schedule_log.floor_ms = self.known.hour_floor
        self._broken: TernError | None = None
        self._kept = RecordCache(self.schedule_files)

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
        suffix: bool = False,
    ) -> "DelayStore":
        """Open and recover; with `suffix` not everything that is written is safe. Raises
        `DiskFull` or `DiskFailed`."""
        config = StorageConfig(
            segment_size=max(STORED_SIZE_MAX, min(segment_size, SEGMENT_SIZE_MAX)),
            min_free=min_free,
        )
        opened = open_files(disk, paths)
        store = cls(opened, clock=clock, hour_ms=hour_ms, config=config, suffix=suffix)
        store.catch_up()
        if not suffix and hour_ms != store.known.hour_ms:
            # What follows is cut differently, so what is done must never be done again.
            store._use_hours(hour_ms)
            store.settle()
            store.checkpoint(store.snapshot())
        return store

    @property
    def messages(self) -> MessageLog:
        return self.wal.messages

    @property
    def failed(self) -> TernError | None:
        """Why nothing can be kept until a restart, if so."""
        return (
            self.messages.failed
            or self.decisions.failed
            or self.schedule_files.failed
            or self.dispatch_files.failed
            or self._broken
        )

    def give_up(self, error: TernError) -> None:
        """Nothing is done here any more until a restart."""
        self._broken = self._broken or error

    def look(self) -> None:
        """Notice files that were removed under us; blocks. Any thread."""
        self.wal.source.look()
        self.decisions.look()
        self.schedule_files.look()
        self.dispatch_files.look()

    # From the logs to the hours

    def catch_up(self) -> None:
        """Schedule and derive everything that is safe, before anybody else uses the store."""
        touched: set[int] = set()
        while self.follow_some(touched):
            pass
        for start in touched & self.hours.keys() - self.undecided.keys():
            hour = self.hours[start]
            hour.take_book(self.read_book(start, hour.rows))
        for hour in self.hours.values():
            if hour.pending > 0 and hour.next_due >= NEVER:
                hour.next_due = hour.start  # What waits here could not be read before.
        self.messages.stored_at_ms = max(self.messages.stored_at_ms, self.stored_at_ms)

    def follow_some(self, touched: set[int] | None = None) -> bool:
        """One step of that, also for a replica; False: there is nothing to do. Raises."""
        before = self.scheduled_to, self.derived_to
        if self.scheduled_to < self._schedulable:
            step = self.schedule(frozenset())
            for start, entry in step.entries:
                self.hours.setdefault(start, Hour(start)).grew(entry)
            self.stored_at_ms = max(self.stored_at_ms, step.stored_at_ms)
            if step.error is not None:
                raise step.error
        self.derive(touched)
        return before != (self.scheduled_to, self.derived_to)

    @property
    def _schedulable(self) -> int:
        """The safe message log up to where the length of an hour may be another one."""
        later = [start for number, start in self.tables()[MESSAGES] if number > self.begun]
        return min([self.messages.safe_offset, *later])

    def schedule(self, near: Container[int]) -> Scheduled:
        """Put the next batches of the message log into the schedule logs."""
        offset = self.scheduled_to
        data = self.wal.read(offset, SCHEDULE_SIZE, self._schedulable)
        done = self.schedule_log.write(data, offset, near)
        self.scheduled_to = done.upto
        if done.damaged and self._replicated:
            # The others have these rows, and number all that follow differently.
            self.give_up(
                Corrupt(
                    f"the message log is damaged behind {offset}: this member cannot go on like "
                    "the others; move its data directory aside and start it again"
                )
            )
        return done

    def derive(self, touched: set[int] | None = None) -> None:
        """Put decisions that count into the dispatch logs. Raises; what was done then is not done
        again."""
        journal = self.decisions
        if journal.failed is not None:
            return
        while self.derived_to < (end := journal.derivable):
            gathered: dict[int, list[memoryview]] = {}
            places: dict[int, int] = {}
            upto, special = self.derived_to, None
            for noted in journal.records(self.derived_to, end):
                if noted.end > end or noted.scheduled > self.scheduled_to:
                    break
                upto = noted.end
                if noted.kind in NOT_FOR_HOURS:
                    special = noted
                    break
                hour = noted.hour
                place = places.get(hour, self.dispatch_files.ends.get(hour, 0))
                if hour in self.hours and noted.place == place:
                    gathered.setdefault(hour, []).append(noted.record)
                    places[hour] = place + len(noted.record)
                elif hour in self.hours and noted.place > place:
                    self._not_known(hour, place)
            for hour, records in gathered.items():
                self.dispatch_files.append(hour, records)
            if touched is not None:
                touched.update(gathered)
            if upto == self.derived_to:
                return  # What this is about is not scheduled yet.
            self.derived_to = upto
            if special is not None:
                self._apply(special.kind, special.hour, special.decision())

    def _apply(self, kind: DecisionKind, hour: int, decision: Decision) -> None:
        if kind is DecisionKind.BEGUN and decision.first_sequence > self.begun:
            self._use_hours(decision.value)
            self.begun = decision.first_sequence
        elif kind is DecisionKind.GONE:
            self._gone_before = max(self._gone_before, decision.value)
            if not self.led:
                self.stored_at_ms = max(self.stored_at_ms, decision.value)
                self._leave(hour)

    def _use_hours(self, hour_ms: int) -> None:
        """Hours are of this length from here on. A longer one may not begin where a shorter one
        began that is gone: its files may still be there, or not, from member to member."""
        if hour_ms != self.schedule_log.hour_ms:
            self.schedule_log.hour_ms = hour_ms
            self.schedule_log.floor_ms = self._gone_before

    def _leave(self, start: int) -> None:
        """An hour is gone: its counts are kept, its files go with the next checkpoint."""
        hour = self.hours.get(start)
        if hour is None:
            return
        if start not in self.undecided:
            hour.take_counts(self.read_book(start, hour.rows))
        self.gone(self.hours.pop(start))

    def gone(self, hour: Hour) -> None:
        self.gone_dispatched.update(hour.dispatched)
        self.gone_cancelled.update(hour.cancelled)
        self.dropping.add(hour.start)

    def _not_known(self, start: int, offset: int) -> None:
        path = self.paths.dispatch / hour_name(start)
        self.undecided[start] = unknown(f"{path} ends at {offset}, which is too early")
        log.error("decisions are lost; nothing of this hour is sent", hour=start, offset=offset)

    def read_book(self, start: int, rows: int) -> DecisionBook:
        """The decisions about an hour, from its dispatch log and the journal behind what lies in
        it; raises `Corrupt`."""
        if start in self.undecided:
            raise Corrupt(self.undecided[start])
        book = DecisionBook()
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
        self._read_on(book, start, end)
        return book

    def _read_on(self, book: DecisionBook, start: int, end: int) -> None:
        at, safe = self.derived_to, self.decisions.safe_offset
        while at < safe:
            for noted in self.decisions.records(at, safe):
                if noted.end > safe:
                    return
                at = noted.end
                mine = noted.hour == start and noted.kind not in NOT_FOR_HOURS
                if mine and noted.place >= end:
                    book.apply(noted.decision())

    def record(self, start: int, offset: int, size: int) -> BatchView:
        """One checked record of a schedule log; raises `Corrupt`. Any thread."""
        return self._kept.get(start, offset, size)

    # Deciding

    def decide(self, items: list[Deciding]) -> None:
        """Write decisions that count when they are on this disk; errors are told item by item."""
        try:
            staged = self.decisions.stage(items, scheduled=self.scheduled_to, sync=False)
        except TernError as error:
            _tell(items, error)
            return
        try:
            self.decisions.write(staged)
        except TernError as error:
            self.decisions.abandon(staged)
            _tell(items, error)
        else:
            self.decisions.commit(staged)

    # Checkpoints

    def settling(self) -> tuple[int, list[int]]:
        """How far the journal lies in dispatch logs, and which of them have to be synced for it."""
        self.derive()
        files = self.dispatch_files
        return self.derived_to, [
            hour for hour, end in list(files.ends.items()) if files.behind(hour, end)
        ]

    def settle(self) -> None:
        """Sync all of them."""
        upto, behind = self.settling()
        self.dispatch_files.sync_many(behind)
        self.settled_to = upto

    def snapshot(self, *, clean: bool = False) -> DelayCheckpoint:
        """How far everything is, while nobody schedules; on the loop where there is one."""
        messages, ends = self.messages, self.wal.counts.ends
        return DelayCheckpoint(
            clean=clean,
            hour_ms=self.schedule_log.hour_ms,
            wal_durable=messages.safe_offset,
            scheduled=self.scheduled_to,
            stored_at_ms=self.stored_at_ms,
            hours=[
                hour.known(self.dispatch_files.synced.get(start, 0))
                for start, hour in self.hours.items()
            ],
            topics=[
                KnownTopic(
                    id=topic_id,
                    name=self.names.get(topic_id, ""),
                    accepted=accepted,
                    dispatched=self.gone_dispatched[topic_id],
                    cancelled=self.gone_cancelled[topic_id],
                )
                for topic_id, accepted in ends.items()
            ],
            dropping=sorted(self.dropping),
            taken=[(*producer, upto) for producer, upto in self.taken.items()],
            decided_to=self.settled_to,
            decision_safe=self.decisions.derivable,
            begun=self.begun,
            gone_before=self._gone_before,
            hour_floor=self.schedule_log.floor_ms,
        )

    def behind(self, now: DelayCheckpoint) -> list[int]:
        """Hours that must be synced before this checkpoint is true."""
        files = self.schedule_files
        return [hour.start for hour in now.hours if files.behind(hour.start, hour.length)]

    def checkpoint(self, now: DelayCheckpoint) -> None:
        """Sync what was scheduled, then write down how far everything is."""
        if self.failed is not None:
            return
        self.schedule_files.sync_many(self.behind(now))
        if now.clean or self.messages.safe_offset - self.wal.producers_to >= PRODUCERS_EACH:
            covers = self.messages.safe_offset
            self.disk.write_atomic(self.paths.producers, self.wal.producers.snapshot(covers))
            self.wal.producers_to = covers
        content = checkpoint_file.encode(now)
        # Nothing else knows which messages of the message log went out and were removed.
        for path in (self.paths.checkpoint, self.paths.checkpoint_copy):
            self.disk.write_atomic(path, content)
        self.known = now

    def trim(self) -> None:
        """Remove what of both logs lies in the files of hours, and no member needs, nor the start
        to know the producers."""
        if self.holding:
            return
        needed = self.needed
        messages = min(self.known.scheduled, self.wal.producers_to, needed.get(MESSAGES, NEVER))
        self.wal.forget_before(messages)
        self.decisions.forget_before(min(self.known.decided_to, needed.get(DECISIONS, NEVER)))

    def remove(self, hours: list[int]) -> list[int]:
        """Remove hours that a checkpoint says are dropped, but for those that are being copied;
        returns which. Schedules first, so that a crash in between never leaves rows without the
        knowledge that they are settled."""
        held = frozenset[int]().union(*list(self.holding.values()))
        hours = [hour for hour in hours if hour not in held]
        self.derive()  # Nothing that is to come may make a file again.
        self.schedule_log.forget(hours)
        self.dispatch_files.drop(hours)
        self._kept.forget(hours)
        return hours

    # Members of a group

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        """(epoch, start) of every epoch, by log: 0 the message log, 1 the journal."""
        return self._membership.tables()

    def begin_epoch(self, epoch: int) -> None:
        """Lead under this epoch from the end of both logs on; before the first append. Blocks. The
        journal gets a first record: what follows is cut into hours of the length set here."""
        self._membership.begin(
            epoch, hour_ms=self.hour_ms, derived_to=self.derived_to, clock=self._clock
        )

    def adopt_epochs(self, tables: dict[int, Starts]) -> None:
        """Follow the master that has these tables; after `truncate`, before the first `receive`.
        Blocks."""
        self._membership.adopt(tables)

    def truncate(self, message_to: int, decision_to: int) -> None:
        """Cut both logs off here; blocks, while nothing is written. Killed in the middle, the next
        start finishes it. Raises `Diverged` and leaves everything as it is where that would touch
        what is safe."""
        self._membership.truncate(message_to, decision_to)

    def close(self) -> None:
        self.wal.source.close()
        self.decisions.close()
        self.schedule_files.close()
        self.dispatch_files.close()


def _tell(items: list[Deciding], error: TernError) -> None:
    for item in items:
        item.error = error
