"""Opens a data directory: what each file still holds, and how much of it is safe.

In this order: finish what came from a master, read the checkpoint, finish a removal that had begun,
the schedule logs behind their checkpointed lengths, the dispatch logs whole, the message log behind
the checkpoint, the journal behind what lies in dispatch logs.

A member of a group with replicas opens with a suffix: what lies above the safe marks is checked and
kept, nothing is derived from it. Nothing derived covers more than was safe, so what lies in an
hour's files is a safe mark too, should the checkpoint be older.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, DiskFailed
from ternmq.core.log import get_logger
from ternmq.delay.formats import checkpoint as checkpoint_file
from ternmq.delay.formats.checkpoint import DelayCheckpoint
from ternmq.delay.formats.decision import Decision, DispatchFormat, decode
from ternmq.delay.formats.journal_record import JournalFormat, parse
from ternmq.delay.formats.paths import DelayPaths, hour_name
from ternmq.delay.hours.decision_book import DecisionBook
from ternmq.delay.hours.hour import Hour
from ternmq.delay.hours.hour_index import IndexedRows, entry_of
from ternmq.delay.store.bootstrap_install import finish_base
from ternmq.delay.store.hour_files import HourFiles
from ternmq.delay.store.journal import NOT_FOR_HOURS, SEGMENT_SIZE, Journal
from ternmq.delay.store.wal import Wal, WalMarks, open_wal
from ternmq.storage.config import StorageConfig
from ternmq.storage.consume.batch_scan import MessageFormat
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.log import recovery
from ternmq.storage.log.epoch_history import EpochHistory, redo_cut
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.log.segmented_log import SegmentedLog

log = get_logger()

Record = TypeVar("Record")

AFTER_THE_OLD = 4096


@dataclass(slots=True)
class Opened:
    """What a start found."""

    disk: Disk
    paths: DelayPaths
    schedule_files: HourFiles
    dispatch_files: HourFiles
    history: EpochHistory
    known: DelayCheckpoint = field(default_factory=DelayCheckpoint)
    report: RecoveryReport = field(default_factory=RecoveryReport)
    hours: dict[int, Hour] = field(default_factory=dict)
    undecided: dict[int, str] = field(default_factory=dict)


def open_files(disk: Disk, paths: DelayPaths) -> Opened:
    """Everything that is kept by hour. Blocks, as all of this."""
    for directory in paths.directories():
        disk.mkdir(directory)
    for directory in paths.directories():
        # A name that a killed process made and did not sync is seen, and can still be lost.
        disk.sync_dir(directory)
    finish_base(disk, paths)
    found = Opened(
        disk,
        paths,
        HourFiles(disk, paths.schedule),
        HourFiles(disk, paths.dispatch),
        EpochHistory(disk, paths.epochs),
    )
    _read_checkpoint(found)
    found.schedule_files.drop(found.known.dropping)
    found.dispatch_files.drop(found.known.dropping)
    found.history.load(found.report)
    _open_schedules(found)
    _open_dispatches(found)
    return found


def _read_checkpoint(found: Opened) -> None:
    there = False
    for path in (found.paths.checkpoint, found.paths.checkpoint_copy):
        if not found.disk.exists(path):
            continue
        there = True
        try:
            found.known = checkpoint_file.decode(found.disk.read(path))
            return
        except Corrupt as error:
            log.error("a delay checkpoint is bad", path=str(path), error=error.message)
            found.report.notes.append(error.message)
    if there:
        log.error("no delay checkpoint is good; what went out long ago may go out again")


def _open_schedules(found: Opened) -> None:
    known = {hour.start: hour for hour in found.known.hours}
    files = found.schedule_files
    for start in sorted(known.keys() - set(found.known.dropping) | {*files.found()}):
        before = known.get(start)
        hour = found.hours[start] = Hour(start) if before is None else Hour.as_known(before)
        entries: _WholeRecords[IndexedRows] = _WholeRecords(entry_of)
        lost = files.recover(
            start,
            start=hour.length,
            durable=hour.length,
            form=MessageFormat(),
            visit=entries.visit,
            story=(found.paths.for_recovery(), found.report),
        )
        for entry in entries.below(files.ends[start]):
            hour.grew(entry)
        if lost:
            log.error("messages of a schedule log are lost; they stay pending", hour=start)


def _open_dispatches(found: Opened) -> None:
    files = found.dispatch_files
    orphans = [hour for hour in files.found() if hour not in found.hours]
    files.drop(orphans)  # A removal that was cut short: schedules go first.
    known = {hour.start: hour.decided for hour in found.known.hours if hour.decided}
    for start in sorted(known.keys() & found.hours.keys() | {*files.found()}):
        hour = found.hours[start]
        decisions: _WholeRecords[Decision] = _WholeRecords(decode)
        lost = files.recover(
            start,
            start=0,
            durable=known.get(start, 0),
            form=DispatchFormat(),
            visit=decisions.visit,
            story=(found.paths.for_recovery(), found.report),
        )
        book = DecisionBook()
        book.grow(hour.rows)
        for decision in decisions.below(files.ends[start]):
            book.apply(decision)
        hour.take_book(book)
        if lost:
            path = found.paths.dispatch / hour_name(start)
            found.undecided[start] = unknown(f"{path} is damaged at {lost[0].start}")
            log.error(
                "decisions are lost; nothing of this hour is sent", hour=start, offset=lost[0].start
            )
            hour.book = None


def unknown(what: str) -> str:
    return (
        f"{what}: what was sent and what was cancelled of this hour is not known, so nothing of it "
        "is sent; bring the file back from a copy and restart"
    )


def open_messages(found: Opened, *, clock: Clock, config: StorageConfig, suffix: bool) -> Wal:
    """The message log. With a suffix all that lies in schedule logs is safe, the rest as known."""
    marks = WalMarks(
        found.known,
        found.history.epochs,
        suffix,
        derived=max((hour.wal_offset for hour in found.hours.values()), default=-1),
    )
    return open_wal(
        found.disk, found.paths, clock=clock, marks=marks, config=config, report=found.report
    )


def open_journal(found: Opened, *, suffix: bool) -> Journal:
    """The journal. With a suffix all that lies in dispatch logs is safe, the rest as known."""
    known, epochs, files = found.known, found.history.epochs, found.dispatch_files
    mark = LogMark(found.disk, found.paths.decisions_mark)
    segments = SegmentedLog(found.disk, found.paths.decisions, segment_size=SEGMENT_SIZE, mark=mark)
    if known.scheduled and not known.decided_to and segments.end == 0 and not epochs.last:
        # Of before there was a journal, since nothing is scheduled before an epoch is in there:
        # whoever copies this one needs the hours' files too.
        segments.begin_at(AFTER_THE_OLD)
    redo_cut(segments, epochs.pull_cut)
    start = max(known.decided_to, segments.start)
    start = start if start <= segments.end else segments.active_base
    recovery.keep_short_segments(segments, start, found.paths.for_recovery(), found.report)
    derived = 0

    def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
        nonlocal derived
        if problem is None:
            noted = parse(data)
            if noted.kind not in NOT_FOR_HOURS and noted.place < files.ends.get(noted.hour, 0):
                derived = noted.end

    scan = recovery.scan(
        segments,
        start=start,
        durable=max(known.decision_safe, mark.synced),
        visit=visit,
        form=recovery.OwnMarks(JournalFormat(), epochs.pulls.is_own),
    )
    verdict = recovery.decide(scan)
    recovery.repair(segments, scan, verdict, found.paths.for_recovery(), found.report)
    segments.cut(segments.end)  # Nothing that was cut in vain comes back after a power cut.
    if verdict.holes:
        segments.give_up(
            DiskFailed(
                f"{segments.directory} is damaged at {verdict.holes[0].start}: decisions of the "
                "last seconds are lost, so nothing is sent; bring it back from a copy, or move it "
                "aside and restart: what they were about may go out twice then"
            )
        )
        log.error("decisions are lost; nothing is sent", offset=verdict.holes[0].start)
    if not suffix:
        return Journal(segments, files)
    safe = min(max(known.decision_safe, derived, segments.start), segments.end)
    return Journal(segments, files, safe_offset=safe)


class _WholeRecords(Generic[Record]):
    """Whole records that recovery met; those behind a torn one do not count."""

    def __init__(self, parse: Callable[[bytes], Record]) -> None:
        self._parse = parse
        self._found: list[tuple[int, Record]] = []

    def visit(self, offset: int, data: memoryview, problem: Corrupt | None) -> None:
        if problem is None:
            self._found.append((offset, self._parse(bytes(data))))

    def below(self, end: int) -> list[Record]:
        return [record for offset, record in self._found if offset < end]
