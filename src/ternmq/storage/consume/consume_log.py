"""The consume log: for every topic, which batches hold which sequences.

Entries of the active segment are in memory and, by checkpoints, in its tail file. When a segment
is sealed its entries are frozen and stay in memory until the next checkpoint has written them as a
table; from then on they are read from there. All of it can be made again from the message log.

Threads: the broker's loop commits and reads; the writer thread checkpoints; reader threads may
call `entries` for what `entries_nowait` does not have in memory. Readers lock nothing: lists and
tables are replaced rather than changed, and `pending` only grows at its end and shrinks at its
front, each in one step of the interpreter.
"""

import threading
from pathlib import Path

from ternmq.batch.half import PlacedHalf
from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.core.log import get_logger
from ternmq.storage.consume.entry import RECORD, RECORD_SIZE, ConsumeEntry, Location, anchor
from ternmq.storage.consume.runs import Run, Runs, Selection
from ternmq.storage.consume.table_file import Contents, Table, write_table
from ternmq.storage.consume.tables import ConsumeTables, WouldBlock
from ternmq.storage.consume.tail_file import pack_block
from ternmq.storage.files.disk import Disk, File, write_all
from ternmq.storage.files.paths import Paths
from ternmq.storage.log.append import Append, Ending, HalfMark
from ternmq.storage.log.retention_rules import Segment

log = get_logger()

_pack_record = RECORD.pack


class ConsumeLog:
    """Positions of the batches of all topics."""

    def __init__(self, disk: Disk, paths: Paths, tables: ConsumeTables, *, active: Runs) -> None:
        self._disk = disk
        self._paths = paths
        self._tables = tables
        self._active = active
        self._frozen: list[tuple[Runs, int]] = []  # With the offset where the segment ends.
        self._sealing = threading.Lock()  # Both threads replace `_frozen`.
        self.ends = active.ends
        self._firsts: dict[int, int] = {}  # Only where above zero.
        self._forgotten = (0, 0)  # Highest topic id that was forgotten, and where it ended.
        self._pending = bytearray()  # Records that no tail file has yet.
        self.tail_file = TailFile(disk, paths)

    # What the broker asks

    def bounds(self, topic_id: int) -> tuple[int, int]:
        """First kept sequence and the one after the last that is safe; (0, 0) when unknown."""
        end = self.ends.get(topic_id)
        return (0, 0) if end is None else (self._firsts.get(topic_id, 0), end)

    def entries(
        self, topic_id: int, sequence: int, *, rows_max: int, size_max: int
    ) -> list[ConsumeEntry]:
        """The batch that holds `sequence` and the ones after it, until a limit; at least one."""
        found = self._entries(topic_id, sequence, rows_max, size_max, wait=True)
        assert found is not None
        return found

    def entries_nowait(
        self, topic_id: int, sequence: int, *, rows_max: int, size_max: int
    ) -> list[ConsumeEntry] | None:
        """The entries from memory and page cache only; None where that is not enough."""
        return self._entries(topic_id, sequence, rows_max, size_max, wait=False)

    def at_time(self, topic_id: int, stored_at_ms: int) -> int:
        """First sequence stored at or after this time; the end if there is none. May wait."""
        return self._at_time(topic_id, stored_at_ms, wait=True)

    def at_time_nowait(self, topic_id: int, stored_at_ms: int) -> int | None:
        """The place from memory and page cache only; None where that is not enough."""
        try:
            return self._at_time(topic_id, stored_at_ms, wait=False)
        except WouldBlock:
            return None

    def _at_time(self, topic_id: int, stored_at_ms: int, *, wait: bool) -> int:
        first, end = self.bounds(topic_id)
        if not end:
            return end
        found = self._tables.find_time(topic_id, stored_at_ms, wait=wait)
        if found is None:
            for runs in [runs for runs, _ in self._frozen] + [self._active]:
                run = runs.runs.get(topic_id)
                found = run.find_time(stored_at_ms) if run is not None else None
                if found is not None:
                    break
        return end if found is None else max(first, found)

    def forget(self, topic_id: int) -> None:
        """A topic is deleted: drop what memory holds of it. Its id is never used again."""
        end = self.ends.pop(topic_id, None)
        if end is not None:
            self._forgotten = max(self._forgotten, (topic_id, end))
        self._firsts.pop(topic_id, None)
        self._active.runs.pop(topic_id, None)
        for runs, _ in self._frozen:
            runs.runs.pop(topic_id, None)

    def topic_ids(self) -> list[int]:
        """Every topic that ever had a message here and was not forgotten; after a start also the
        highest one that was."""
        return list(self.ends)

    def _entries(
        self, topic_id: int, sequence: int, rows_max: int, size_max: int, *, wait: bool
    ) -> list[ConsumeEntry] | None:
        end = self.ends.get(topic_id)
        if end is None or sequence >= end:
            return []
        run = self._active.runs.get(topic_id)
        if run is not None and sequence >= run.bases[0]:
            selection = Selection(sequence, rows_max, size_max)
            selection.take(run.packed, run.find(sequence))
            return selection.found
        selection = Selection(max(sequence, self._firsts.get(topic_id, 0)), rows_max, size_max)
        try:
            self._gather(topic_id, selection, end, wait=wait)
        except WouldBlock:
            return selection.found or None
        return selection.found

    def _gather(self, topic_id: int, selection: Selection, end: int, *, wait: bool) -> None:
        """Go through tables, frozen runs and the active run, until a limit."""
        while selection.sequence < end and not selection.full:
            run = self._run_with(topic_id, selection.sequence)
            if run is not None:
                selection.take(run.packed, run.find(selection.sequence))
            elif not self._tables.take(topic_id, selection, wait=wait):
                return

    def _run_with(self, topic_id: int, sequence: int) -> Run | None:
        for runs in [self._active] + [runs for runs, _ in reversed(self._frozen)]:
            run = runs.runs.get(topic_id)
            if run is not None and sequence >= run.bases[0]:
                return run
        return None

    # What the message log does

    def commit(self, appends: list[Append], ends: dict[int, int], rolls: list[int]) -> bytearray:
        """Make the entries of a group visible; returns their packed records."""
        records = bytearray()
        if rolls:
            rolls = [base for base in rolls if base > self._active.base]
        next_roll = rolls[0] if rolls else 2**63
        runs = self._active.runs
        for append in appends:
            if append.offset >= next_roll:
                self.seal(next_roll)
                runs = self._active.runs
                rolls = rolls[1:]
                next_roll = rolls[0] if rolls else 2**63
            if append.special is not None:
                records += self._special(append, append.special)
                continue
            topic_id = append.topic_id
            base_sequence = append.base_sequence
            producer = append.producer
            record = _pack_record(
                topic_id,
                base_sequence,
                append.offset,
                len(append.batch),
                append.count,
                append.stored_at_ms,
                append.tag_bloom,
                append.priority,
                0,
                0,
                producer[0],
                producer[1],
                append.first_sequence,
            )
            records += record
            run = runs.get(topic_id)
            if run is None:
                run = runs[topic_id] = Run()
            run.packed += record[8:56]
            run.bases.append(base_sequence)
        self._pending += records
        self.ends.update(ends)
        return records

    def _special(self, append: Append, special: HalfMark | Ending) -> bytes:
        """The records of a half or control batch; a commit also makes its half batches visible."""
        decision = special.decision if isinstance(special, Ending) else None
        location = Location.HALF if decision is None else Location.CONTROL
        topic_id, producer = append.topic_id, append.producer
        records = _pack_record(
            topic_id,
            append.base_sequence,
            append.offset,
            len(append.batch),
            append.count,
            append.stored_at_ms,
            append.tag_bloom,
            append.priority,
            location,
            0,
            producer[0],
            producer[1],
            append.first_sequence,
        )
        for placed in decision.placed if decision is not None else ():
            record = committed_record(placed, append.stored_at_ms)
            records += record
            run = self._active.runs.setdefault(placed.topic_id, Run())
            run.append(placed.sequence, record[8:56])
        return records

    def seal(self, base: int) -> None:
        """The active segment is complete; the next one starts at `base`."""
        with self._sealing:
            self._frozen = [*self._frozen, (self._active, base)]
        self._active = Runs(base, self.ends, from_zero=self._active.from_zero)

    # Opening

    def adopt(self, records: bytes | bytearray, firsts: dict[int, int]) -> None:
        """Take over what a scan found beyond the tail file, and where topics begin."""
        self._pending += records
        self._firsts = firsts | self._active.firsts

    # Retention

    def trim(self, firsts: dict[int, int]) -> None:
        """Rows of these topics below a sequence are gone: reads no longer find them."""
        for topic_id, first in firsts.items():
            end = self.ends.get(topic_id)
            if end is not None and first > self._firsts.get(topic_id, 0):
                self._firsts[topic_id] = min(first, end)

    def sealed(self) -> list[Segment]:
        """Segments that have a table, oldest first."""
        tables = self._tables.tables
        return [Segment(table.base, table.end, table.last_stored_at_ms) for table in tables]

    def ends_at(self, base: int) -> dict[int, int]:
        """Where topics stand at the end of a sealed segment; may wait for the disk."""
        return self._tables.index(self._table(base)).ends()

    def is_known(self, topic_id: int) -> bool:
        """Is its end still needed? Also of the highest that was deleted: ids are not reused."""
        return topic_id in self.ends or topic_id == self._forgotten[0]

    def drop_table(self, base: int) -> None:
        """The segment is gone; on the writer thread."""
        table = self._table(base)
        self._tables.remove(table)
        self._disk.unlink(table.path)

    def _table(self, base: int) -> Table:
        return next(table for table in self._tables.tables if table.base == base)

    # Checkpoints, on the writer thread

    @property
    def active_base(self) -> int:
        """Every batch below this is committed and in a sealed segment."""
        return self._active.base

    def pending_size(self) -> int:
        return len(self._pending)

    def write_tables(self) -> list[int]:
        """Write the tables of sealed segments; return the segments' bases."""
        written: list[int] = []
        while self._frozen:
            runs, end = self._frozen[0]
            table = make_table(
                self._disk,
                self._paths,
                self._tables,
                runs,
                end,
                known=self.ends,
                forgotten=self._forgotten,
            )
            self._tables.add(table)
            with self._sealing:
                self._frozen = self._frozen[1:]
            written.append(runs.base)
        return written

    def write_tail(self, size: int) -> None:
        """Append the first `size` bytes of pending records to the tail file; they are durable."""
        base = self._active.base
        records = bytes(self._pending[:size])
        own = 0  # Records of sealed segments are in tables by now, or in frozen runs.
        while own < len(records) and RECORD.unpack_from(records, own)[2] < base:
            own += RECORD_SIZE
        if own == len(records) or self.tail_file.append(base, records[own:]):
            del self._pending[:size]


def committed_record(placed: PlacedHalf, stored_at_ms: int) -> bytes:
    """The record of a half batch that a commit made visible."""
    return _pack_record(
        placed.topic_id,
        placed.sequence,
        placed.offset,
        placed.size,
        placed.count,
        stored_at_ms,
        placed.tag_bloom,
        placed.priority,
        Location.COMMITTED,
        0,
        placed.producer_start,
        placed.producer_random,
        placed.first_sequence,
    )


def make_table(
    disk: Disk,
    paths: Paths,
    tables: ConsumeTables,
    runs: Runs,
    end: int,
    *,
    known: dict[int, int] | None,
    forgotten: tuple[int, int] = (0, 0),
) -> Table:
    """Write the table of one segment. Topics that are not `known` any more are left out, but for
    the highest id: the last table must tell which ids were ever used (see `Store.known`)."""
    before: dict[int, int] = {}
    older = [table for table in tables.tables if table.base < runs.base]
    if older:
        before = tables.index(older[-1]).ends()
        if known is not None:
            before = {topic: at for topic, at in before.items() if topic in known}
    if forgotten[0] and forgotten[0] not in runs.runs:
        before[forgotten[0]] = forgotten[1]
    path = paths.table(runs.base)
    topics = [(topic_id, run.packed) for topic_id, run in sorted(runs.runs.items())]
    contents = Contents(base=runs.base, end=end, topics=[*topics], before=before)
    write_table(disk, path, contents)
    return Table(disk, path)


class TailFile:
    """Appends blocks to the tail file of the active segment; gives up on one that fails to sync."""

    def __init__(self, disk: Disk, paths: Paths) -> None:
        self._disk = disk
        self._paths = paths
        self._file: File | None = None
        self._base = -1
        self._size = 0
        self._broken = False
        self.covered = 0

    def resume(self, base: int, *, size: int, covered: int) -> None:
        """Go on after the whole blocks of the file that a start found."""
        self._open(base)
        self._size, self.covered = size, covered
        if self._file is not None and self._file.size > size:
            self._file.truncate(size)

    def append(self, base: int, records: bytes) -> bool:
        """Write one block; True when these records need not be offered again."""
        last = RECORD.unpack_from(records, anchor(records))
        end = last[2] + last[3]
        try:
            if base != self._base:
                self._open(base)
                self._size, self.covered, self._broken = 0, base, False
            if self._broken or self._file is None:
                return True
            block = pack_block(self.covered, end, records)
            write_all(self._file, [block], self._size)
            self._file.sync()
        except DiskFull as error:
            log.warning("no space for the consume checkpoint", error=error.message)
            return False
        except DiskFailed as error:
            log.error(
                "the consume checkpoint failed; a restart will read more", error=error.message
            )
            self._broken = True
            return True
        self._size += len(block)
        self.covered = end
        return True

    def _open(self, base: int) -> None:
        path: Path = self._paths.tail(base)
        known = self._disk.exists(path)
        self._file = self._disk.open(path, create=True)
        self._base = base
        if not known:
            self._disk.sync_dir(path.parent)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
