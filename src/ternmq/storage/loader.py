"""Loads the message side of a data directory: tables, tail, scan, producers, in that order.

What is trusted without reading: segments that have a table, and what the tail file of the active
segment covers. What is read: the message log after that. A sealed segment without a table is
walked by its headers. So a start after a crash reads what follows the last checkpoint, however
long the log is. Everything that was read is counted in the report.

A member of a group with replicas opens with a suffix: what lies above the safe mark is checked and
kept, but nothing is derived from it, so it can be cut off later. The segment with the safe mark
counts as the active one then, whether the log goes on in later segments or not. No derived file
covers more than was safe, so each of them is a safe mark too, should the checkpoint be older.
"""

import threading
from bisect import bisect_right
from dataclasses import dataclass

from ternmq.batch.layout import FIXED_SIZE, read_stamp
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, DiskFailed
from ternmq.core.log import get_logger
from ternmq.storage.config import StorageConfig
from ternmq.storage.consume.batch_scan import Collector, MessageFormat, check_stamp, walk
from ternmq.storage.consume.consume_log import ConsumeLog, make_table
from ternmq.storage.consume.entry import RECORD, RECORD_SIZE, ConsumeEntry, Location, anchor
from ternmq.storage.consume.runs import Runs
from ternmq.storage.consume.table_file import HEADER_SIZE, Table
from ternmq.storage.consume.tables import ConsumeTables
from ternmq.storage.consume.tail_file import Tail, read_tail
from ternmq.storage.files import paths as names
from ternmq.storage.files.checkpoint import Checkpoint
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.log_start import LogStart
from ternmq.storage.files.log_start import decode as decode_log_start
from ternmq.storage.files.paths import Paths
from ternmq.storage.log import recovery
from ternmq.storage.log.leader_epochs import LeaderEpochs
from ternmq.storage.log.recovery import Quarantine
from ternmq.storage.log.recovery_report import Hole, RecoveryReport
from ternmq.storage.log.segmented_log import SegmentedLog
from ternmq.storage.messages.producers import ProducerTable
from ternmq.storage.messages.transactions import TransactionTable

log = get_logger()


@dataclass(frozen=True, slots=True)
class LoadMarks:
    """What is known about the log before it is read."""

    checkpoint: Checkpoint
    epochs: LeaderEpochs
    suffix: bool
    """Not everything that is written is safe."""


STAMPS_TRIED = 16  # The last batches may be damaged; epochs hardly change between them.


class Loader:
    """The steps of one start, sharing what they find."""

    def __init__(
        self,
        disk: Disk,
        paths: Paths,
        *,
        source: SegmentedLog,
        config: StorageConfig,
        marks: LoadMarks,
        report: RecoveryReport,
    ) -> None:
        self._disk = disk
        self._paths = paths
        self._source = source
        self._config = config
        self._marks = marks
        self._report = report
        self._quarantine = Quarantine(disk, paths)
        self.tables = ConsumeTables(
            files_open_max=config.files_open_max, rebuild=self.rebuild_table
        )
        self.producers = ProducerTable(
            batches_max=config.producer_batches_max,
            producers_max=config.producers_max,
            silence_ms=config.producer_silence_ms,
        )
        self.producers_from = 0
        self.halves = TransactionTable(segment_of=source.base_of)
        self._halves_from = 0
        self._rebuilding = threading.Lock()
        self.log_start = LogStart()
        self._orphans: dict[int, int] = {}  # Ends that only tables without a segment know.
        self.stored_at_ms = marks.checkpoint.stored_at_ms
        self.epoch = marks.checkpoint.epoch  # The latest that wrote here.
        self.safe_offset = 0
        self.suffix_topic_ids: set[int] = set()
        self.acknowledged = 0
        """By what batches say that were written after it."""
        self._counts: dict[int, int] = {}  # Records that the scan saw, by segment.

    def run(self, clock: Clock) -> ConsumeLog:
        """Recover; returns the consume log. The message log's end is settled afterwards."""
        self._load_producers()
        self._load_log_start()
        self._check_start()
        self._load_halves()
        self._load_tables()
        active = self._find_active()
        below = self._source.bases[active]
        recovery.keep_short_segments(self._source, below, self._paths, self._report)
        for number in range(active):
            self._open_sealed(number, clock)
        if self.tables.tables:
            self.stored_at_ms = max(
                self.stored_at_ms, *(table.last_stored_at_ms for table in self.tables.tables)
            )
        consume = self._open_active(self._source.bases[active])
        self._report.bytes_read += self.tables.bytes_read
        return consume

    def _find_active(self) -> int:
        """Number of the segment from which on not everything is safe and sealed."""
        bases = self._source.bases
        if not self._marks.suffix:
            self.safe_offset = 2**63  # Whatever the scan finds.
            return len(bases) - 1
        ends = [table.end for table in self.tables.tables]
        known = self._marks.checkpoint.message_safe
        safe = max(known, bases[0], self.producers_from, self._halves_from, *ends)
        while True:
            active = bisect_right(bases, safe) - 1
            covered = self._read_tail(bases[active]).end
            if covered <= safe:
                self.safe_offset = safe
                return active
            safe = covered

    # Producers

    def _load_producers(self) -> None:
        if not self._disk.exists(self._paths.producers):
            return
        content = self._disk.read(self._paths.producers)
        self._report.bytes_read += len(content)
        try:
            self.producers_from = self.producers.restore(content)
        except Corrupt as error:
            self._note("the producers file is bad and is made again from the log", error)

    # What retention removed

    def _load_log_start(self) -> None:
        if not self._disk.exists(self._paths.floor):
            return
        try:
            self.log_start = decode_log_start(self._disk.read(self._paths.floor))
        except Corrupt as error:
            self._note("the floor file is bad; topics without stored messages begin anew", error)
            return
        if self._source.drop_before(self.log_start.offset):
            log.info("removed segments are removed", offset=self.log_start.offset)

    def _check_start(self) -> None:
        """What nobody let go and is not there was removed behind our back."""
        start = self._source.start
        if start <= self.log_start.offset:
            return
        reason = "the first segments are missing"
        log.error("safe bytes are missing", offset=self.log_start.offset, end=start, reason=reason)
        size = start - self.log_start.offset
        hole = Hole(log="message", offset=self.log_start.offset, size=size, reason=reason)
        self._report.holes.append(hole)

    @property
    def _from_zero(self) -> bool:
        """Is every topic known that had messages before the log's first byte?"""
        return self._source.start <= self.log_start.offset

    def _ends(self, older: list[Table]) -> dict[int, int]:
        """Where topics stand after these tables, and after what was removed."""
        return self.log_start.ends | (self.tables.index(older[-1]).ends() if older else {})

    # Transactions

    def _load_halves(self) -> None:
        if not self._disk.exists(self._paths.halves):
            return
        content = self._disk.read(self._paths.halves)
        self._report.bytes_read += len(content)
        try:
            self._halves_from = self.halves.restore(content)
        except Corrupt as error:
            self._note("the halves file is bad and is made again from the log", error)

    def _restore_halves(self, records: bytearray) -> None:
        self._report.bytes_read += self.halves.restore_records(
            records,
            self._source.read,
            from_offset=self._halves_from,
            damaged=self._report.holes,
        )

    # Sealed segments

    def _load_tables(self) -> None:
        present = names.bases(self._disk.names(self._paths.consume), names.TABLE_SUFFIX)
        sealed = set(self._source.bases[:-1])
        for base in present:
            path = self._paths.table(base)
            if base < self._source.start and self._from_zero:
                self._disk.unlink(path)  # Its segment was removed, then the node was killed.
                continue
            try:
                table = Table(self._disk, path)
            except (Corrupt, DiskFailed) as error:
                self._quarantine.move(path.name, error.message)
                self._note(f"the consume table {path.name} is bad", error)
                continue
            self._report.bytes_read += HEADER_SIZE
            if base not in sealed:
                self._orphans |= table.load_index(table.open()).ends()
                self._quarantine.move(path.name, "no sealed segment of this name")
                continue
            self.tables.add(table)

    def _open_sealed(self, number: int, clock: Clock) -> None:
        base, end = self._source.bases[number], self._source.bases[number + 1]
        table = next((known for known in self.tables.tables if known.base == base), None)
        fresh = clock.now_ms() - self._config.producer_silence_ms
        producers_done = self.producers_from >= end or (
            table is not None and table.last_stored_at_ms < fresh
        )
        if table is not None and table.end == end and producers_done and self._halves_from >= end:
            return
        records = self._collect(number)
        if self.producers_from < end:
            self.producers.restore_records(records, from_offset=self.producers_from)
        if self._halves_from < end:
            self._restore_halves(records)
        if table is None or table.end != end:
            self._make_table(base, end, records)
            self._report.tables_rebuilt.append(base)
            log.warning("consume table made again", segment=base)

    def _collect(self, number: int) -> bytearray:
        """Records of a sealed segment: from its tail file as far as that goes, then by walking."""
        base, end = self._source.bases[number], self._source.bases[number + 1]
        tail = self._read_tail(base)
        collector = Collector(self._source.read)
        collector.records += tail.records
        if tail.end < end:
            self._report.bytes_read += walk(self._source, tail.end, end, collector)
        return collector.records

    def _make_table(self, base: int, end: int, records: bytearray) -> Table:
        older = [table for table in self.tables.tables if table.base < base]
        runs = Runs(base, self._ends(older), from_zero=self._from_zero)
        runs.add_records(records)
        self._report.lost += runs.lost
        self._report.notes += runs.notes
        table = make_table(self._disk, self._paths, self.tables, runs, end, known=None)
        self.tables.add(table)
        return table

    def rebuild_table(self, base: int) -> Table:
        """Make a table again that was found bad while reading. Any thread, one at a time."""
        with self._rebuilding:
            path = self._paths.table(base)
            if self._disk.exists(path):
                self._quarantine.move(path.name, "found bad while reading")
            if base not in self._source.bases:
                raise Corrupt(f"segment {base} was removed meanwhile")
            number = self._source.bases.index(base)
            records = self._collect(number)
            return self._make_table(base, self._source.bases[number + 1], records)

    # The active segment

    def _read_tail(self, base: int) -> Tail:
        path = self._paths.tail(base)
        if not self._disk.exists(path):
            return Tail(end=base, records=b"", size=0)
        content = self._disk.read(path)
        self._report.bytes_read += len(content)
        tail = read_tail(content, base)
        if tail.size < len(content):
            self._report.notes.append(
                f"{path.name}: {len(content) - tail.size} bytes at its end are no whole checkpoint"
            )
        return tail

    def _open_active(self, base: int) -> ConsumeLog:
        source, marks = self._source, self._marks
        tail = self._read_tail(base)
        self._report.tail_records = len(tail.records) // RECORD_SIZE
        self._counts[base] = self._report.tail_records
        collector = Collector(source.read)
        durable = max(marks.checkpoint.message_durable, tail.end)
        if source.mark is not None:
            durable = max(durable, source.mark.synced)
        if marks.suffix:
            durable = max(durable, self.safe_offset)
        found = recovery.scan(
            source,
            start=tail.end,
            durable=durable,
            visit=self._visiting(collector),
            form=recovery.OwnMarks(MessageFormat(), marks.epochs.is_own),
        )
        self._report.bytes_read += found.bytes_read
        verdict = recovery.decide(found)
        recovery.repair(source, found, verdict, self._paths, self._report)
        if self._report.unclean:
            source.cut(source.end)  # Nothing that was cut in vain comes back after a power cut.
        scanned = _below(collector.records, verdict.end)
        self._report.scanned_records = len(scanned) // RECORD_SIZE
        self.safe_offset = min(self.safe_offset, source.end)
        source.count = self._counts.get(source.active_base, 0)
        return self._take_over(base, tail, scanned)

    def _visiting(self, collector: Collector) -> recovery.Visit:
        bases, counts, safe = self._source.bases, self._counts, self.safe_offset

        def visit(offset: int, data: memoryview, problem: Corrupt | None) -> None:
            base = bases[bisect_right(bases, offset) - 1]
            counts[base] = counts.get(base, 0) + 1
            if offset < safe:
                collector.visit(offset, data, problem)
            elif problem is None:
                stamp = read_stamp(data)
                self.epoch = max(self.epoch, stamp.epoch)
                self.suffix_topic_ids.add(stamp.topic_id)
                # A master writes the next round when the one before counts.
                self.acknowledged = max(self.acknowledged, stamp.durable_to)

        return visit

    def _take_over(self, base: int, tail: Tail, scanned: bytearray) -> ConsumeLog:
        records = bytearray(tail.records) + scanned
        self.producers.restore_records(records, from_offset=self.producers_from)
        self._restore_halves(records)
        tables = self.tables.tables
        runs = Runs(base, self._ends(tables), from_zero=self._from_zero)
        runs.add_records(records)
        for topic_id, end in self._orphans.items():
            known = runs.ends.get(topic_id, 0)
            if known < end:
                lost = ConsumeEntry(
                    known, self._source.end | 1, 0, end - known, 0, 0, 0, Location.LOST
                )
                runs.add(topic_id, lost)
        self._report.lost += runs.lost
        self._report.notes += runs.notes
        consume = ConsumeLog(self._disk, self._paths, self.tables, active=runs)
        consume.tail_file.resume(base, size=tail.size, covered=tail.end)
        firsts = self.tables.index(tables[0]).firsts() if tables else {}
        firsts = self.log_start.ends if self._from_zero else self.log_start.ends | firsts
        for topic, first in self.halves.cross_segment.gone.items():
            firsts = firsts | {topic: max(first, firsts.get(topic, 0))}
        consume.adopt(scanned, {topic: first for topic, first in firsts.items() if first})
        if records:
            last = RECORD.unpack_from(records, len(records) - RECORD_SIZE)
            self.stored_at_ms = max(self.stored_at_ms, last[5])
            self.epoch = max(self.epoch, self._last_epoch(records))
        if base < self._source.active_base <= self.safe_offset:
            consume.seal(self._source.active_base)
        return consume

    def _last_epoch(self, records: bytearray) -> int:
        """Of the last batch that can be read: a checkpoint may be lost, or older than that."""
        first = max(0, len(records) - STAMPS_TRIED * RECORD_SIZE)
        for at in range(len(records) - RECORD_SIZE, first - 1, -RECORD_SIZE):
            record = RECORD.unpack_from(records, at)
            if record[8] == Location.COMMITTED:
                continue  # Written long before, maybe under an older epoch.
            offset = record[2]
            try:
                header = self._source.read(offset, FIXED_SIZE)
                check_stamp(memoryview(header), offset)
            except (Corrupt, DiskFailed):
                continue
            self._report.bytes_read += FIXED_SIZE
            return read_stamp(header).epoch
        return 0

    def _note(self, text: str, error: Exception) -> None:
        log.error(text, error=str(error))
        self._report.notes.append(f"{text}: {error}")


def _below(records: bytearray, end: int) -> bytearray:
    """Drop the records of what was cut off."""
    size = len(records)
    while size:
        last = anchor(records[:size])
        if RECORD.unpack_from(records, last)[2] < end:
            break
        size = last
    return records[:size]
