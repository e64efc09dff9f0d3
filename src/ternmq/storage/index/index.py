"""The message index: finds candidates for an id or a key; `search` looks at the messages.

What was stored last waits as it came (`add`, on the loop, cheap). `fold`, on a thread, turns what
waits into sorted rows in memory; `spill` writes them as an index file once there are many, or much
of the log is behind them. So the index costs the writing of messages nothing, memory is bounded,
and a start after a crash reads only the part of the log that no file covers (`catch_up`).

A file that is missing or damaged is a *gap*: a part of the log to be read again. While there are
gaps the index is not `whole`, and who must not miss a message waits.

Threads: the loop adds; one thread at a time folds, spills and catches up (a lock sees to it); any
thread looks up. Lists of files and levels are replaced, never changed.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ternmq.batch.layout import Buffer
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, DiskFailed
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.storage.files import paths as names
from ternmq.storage.files.disk import Disk
from ternmq.storage.files.paths import Paths
from ternmq.storage.index.index_file import (
    IDS,
    KEYS,
    RANGES,
    Guide,
    IndexFile,
    ordered,
    ranges_with,
    write_index,
)
from ternmq.storage.index.rebuild import RebuiltRows, batches, times_of
from ternmq.storage.index.rows import (
    Hashes,
    IndexColumns,
    IndexRows,
    PlaceColumns,
    hash_producers,
    joined,
    ranges_of,
)
from ternmq.storage.log.append import Append, committed
from ternmq.storage.log.segmented_log import SegmentedLog

log = get_logger()

SPILL_ROWS = 1_000_000  # Rows in memory before they become a file: 24 to 40 MB.
SPILL_SIZE = 256 * MIB  # Log behind the last file before a new one is made.
SMALL_ROWS = 64_000  # A file with fewer rows is joined with the next one.
HELD_SIZE_MAX = 32 * MIB  # Of batches that wait to be folded; others are read from the log.
WAITING_ROUNDS_MAX = 50_000  # Beyond, rounds are forgotten and read from the log again.
GUIDES_SIZE_MAX = 128 * MIB

FOLD_ROUNDS = 512  # Folded together, before the thread rests: a few tenths of a millisecond.
FOLD_BATCHES = 32

EntryPlace = tuple[int, int]
"""Topic id and sequence."""
Rest = Callable[[], None]


def do_not_rest() -> None:
    """For whoever waits for the index, and has the process for itself."""


class _FoldRound(NamedTuple):
    """What one group commit stored."""

    start: int
    end: int
    records: bytes
    batches: list[tuple[int, int, int, int, Buffer | None]]
    """Topic id, base sequence, offset, size and bytes of those that have ids or keys."""


class MessageIndex:
    """Ids and keys of everything in the message log."""

    def __init__(self, disk: Disk, paths: Paths, source: SegmentedLog, safe_offset: int) -> None:
        self._disk = disk
        self._paths = paths
        self._source = source
        self._lock = threading.Lock()
        self._gap_lock = threading.Lock()
        self._rounds: deque[_FoldRound] = deque()
        self._held_in = self._held_out = 0  # Bytes; one thread counts up each.
        self._levels: tuple[IndexColumns, ...] = ()
        self._times = (0, 0)
        self._base = self._folded = safe_offset  # Memory covers the log between these.
        self._added = safe_offset
        self._guides: dict[int, Guide] = {}
        self._files: list[IndexFile] = self._load()
        self._gaps: list[tuple[int, int]] = self._uncovered()

    # Opening

    def _load(self) -> list[IndexFile]:
        files: list[IndexFile] = []
        for base in names.bases(self._disk.names(self._paths.index), names.INDEX_SUFFIX):
            path = self._paths.indexed(base)
            try:
                file = IndexFile(self._disk, path)
            except (Corrupt, DiskFailed) as error:
                log.error("an index file is bad and is made again", error=error.message)
                self._disk.unlink(path)
                continue
            if file.end > self._added or file.end <= self._source.start:
                self._disk.unlink(path)  # Of a log that was cut, or that is gone.
                continue
            files.append(file)
        return files

    def _uncovered(self) -> list[tuple[int, int]]:
        gaps: list[tuple[int, int]] = []
        at = self._source.start
        for file in self._files:
            if file.base > at:
                gaps.append((at, file.base))
            at = max(at, file.end)
        if at < self._added:
            gaps.append((at, self._added))
        return gaps

    @property
    def whole(self) -> bool:
        """Every safe message can be found."""
        return not self._gaps

    # Growing

    def add(self, appends: list[Append], records: bytes, end: int) -> None:
        """A group is safe; on the loop, memory only."""
        found: list[tuple[int, int, int, int, Buffer | None]] = []
        for append in appends:
            if append.special is not None:
                found += [
                    (one.topic_id, one.sequence, one.offset, one.size, None)
                    for one in committed(append.special)
                    if one.searchable
                ]
            elif append.searchable:
                size = len(append.batch)
                keep = self._held_in - self._held_out + size <= HELD_SIZE_MAX
                if keep:
                    self._held_in += size
                place = (append.topic_id, append.base_sequence, append.offset, size)
                found.append((*place, append.batch if keep else None))
        self._rounds.append(_FoldRound(self._added, end, records, found))
        self._added = end
        if len(self._rounds) > WAITING_ROUNDS_MAX:
            lost = self._rounds.popleft()
            self._held_in -= sum(found[3] for found in lost.batches if found[4] is not None)
            self._miss(lost.start, lost.end)

    def work(self, synced: Callable[[], int], rest: Rest = do_not_rest) -> None:
        """Fold, spill what is due, read what no file covers; blocks. Called now and then. `rest` is
        called after every short piece of it."""
        with self._lock:
            self._fold(rest)
            rows = sum(level.row_count for level in self._levels)
            if rows >= SPILL_ROWS or self._folded - self._base >= SPILL_SIZE:
                self._spill(synced())
        self.catch_up()
        self.trim()

    def fold(self) -> None:
        """Make everything that was added findable; blocks a little."""
        with self._lock:
            self._fold()

    def _fold(self, rest: Rest = do_not_rest) -> None:
        parts: list[IndexColumns] = []
        try:
            while self._rounds:
                parts.append(self._fold_some())
                if self._rounds:
                    rest()
        finally:
            if parts:
                self._levels = _merged(self._levels, ordered(joined(parts)))

    def _miss(self, start: int, end: int) -> None:
        """This part of the log is read again; any thread. Neighbours become one."""
        with self._gap_lock:
            last = self._gaps[-1] if self._gaps else (0, -1)
            if last[1] == start:
                self._gaps = [*self._gaps[:-1], (last[0], end)]
            else:
                self._gaps = [*self._gaps, (start, end)]

    def _fold_some(self) -> IndexColumns:
        """The next rounds together: a round may be one message. What fails half way is not lost:
        the log tells all of it again."""
        start = self._rounds[0].start
        try:
            return self._folded_rounds()
        except BaseException:
            self._miss(start, self._folded)
            raise

    def _folded_rounds(self) -> IndexColumns:
        places, looked = PlaceColumns(), 0
        records: list[bytes] = []
        while self._rounds and looked < FOLD_BATCHES and len(records) < FOLD_ROUNDS:
            one = self._rounds.popleft()
            self._folded = one.end
            looked += len(one.batches)
            for topic_id, base_sequence, offset, size, batch in one.batches:
                if batch is None:
                    try:
                        batch = self._source.read(offset, size)
                    except Corrupt:
                        continue  # A half batch that went with its segment since.
                else:
                    self._held_out += size
                places.add(BatchView(batch), topic_id, base_sequence)
            records.append(one.records)
        together = b"".join(records)
        first, last = times_of(together)
        self._times = (self._times[0] or first, last or self._times[1])
        return IndexColumns(ranges_of(together), *places.rows())

    def _spill(self, synced: int) -> None:
        """Write what is in memory as a file; only what is on disk itself may be covered."""
        if self._folded > synced or self._folded == self._base or self._gaps:
            return
        self._write((self._base, self._folded), self._times, joined(list(self._levels)))
        self._levels, self._times = (), (0, 0)
        self._base = self._folded

    def _write(self, span: tuple[int, int], times: tuple[int, int], columns: IndexColumns) -> None:
        """A new file, joined with the one before it where that is small."""
        base, files = span[0], self._files
        before = next((file for file in files if file.end == base), None)
        if before is not None and sum(before.counts) < SMALL_ROWS:
            try:
                columns = joined([before.everything(), columns])
                base = before.base
                times = (before.first_stored_at_ms or times[0], times[1])
            except Corrupt as error:
                log.error("a small index file is bad", error=error.message)
                before = None
        else:
            before = None
        path = self._paths.indexed(base)
        write_index(self._disk, path, span=(base, span[1]), times=times, columns=columns)
        self._guides.pop(base, None)
        others = [file for file in files if file.base != base]
        self._files = sorted([*others, IndexFile(self._disk, path)], key=lambda file: file.base)

    def close(self, synced: int) -> None:
        """Write down what is in memory, so that the next start need not read the log."""
        with self._lock:
            self._fold()
            self._spill(synced)

    def catch_up(self) -> None:
        """Read what no file covers, newest first; blocks for as long as that takes."""
        while self._gaps:
            with self._lock:
                wanted = self._gaps[-1]
                start, end = max(wanted[0], self._source.start), wanted[1]
                rebuilt = RebuiltRows(self._source)
                reached = start
                for offset, batch in batches(self._source, start, end):
                    rebuilt.add(offset, batch)
                    reached = offset + len(batch)
                    if rebuilt.row_count >= SPILL_ROWS or reached - start >= SPILL_SIZE:
                        break
                else:
                    reached = end
                if reached > start:
                    self._write((start, reached), rebuilt.times(), rebuilt.columns())
                rest = [(reached, end)] if reached < end else []
                with self._gap_lock:  # Others may have come meanwhile, and this one may have grown.
                    self._gaps = [gap for gap in self._gaps if gap != wanted] + rest

    def trim(self) -> None:
        """Remove the files of segments that are gone."""
        with self._lock:
            start = self._source.start
            for file in [file for file in self._files if file.end <= start]:
                self._files = [other for other in self._files if other is not file]
                self._guides.pop(file.base, None)
                self._disk.unlink(file.path)

    # Looking up

    def with_ids(self, hashes: Hashes) -> list[tuple[int, EntryPlace]]:
        """(number of the id, candidate) for explicit ids."""
        levels, files = self._levels, self._files
        found: list[tuple[int, EntryPlace]] = []
        for level in levels:
            found += _matches(level.ids, hashes)
        for file in files:
            if not file.counts[IDS]:
                continue
            guide = self._guide(file)
            for number in np.flatnonzero(guide.maybe(hashes)).tolist():
                rows = self._rows(file, guide, IDS, int(hashes[number]))
                found += [(number, place) for place in _places(rows)]
        return found

    def with_key(self, key_hash: int) -> list[EntryPlace]:
        """Candidates for a key, those stored last first."""
        levels, files = self._levels, self._files
        found: list[EntryPlace] = []
        for level in reversed(levels):
            matching = _matches(level.keys, np.array([key_hash], np.uint64))
            found += [place for _, place in reversed(matching)]
        for file in reversed(files):
            if file.counts[KEYS]:
                found += _places(self._rows(file, self._guide(file), KEYS, key_hash))[::-1]
        return found

    def with_number(self, start: int, random: int, number: int) -> list[EntryPlace]:
        """Candidates for an id that the producer's numbers make."""
        pair = np.array([start], np.uint64), np.array([random], np.uint64)
        producer = int(hash_producers(*pair)[0])
        levels, files = self._levels, self._files
        found = [ranges_with(level.ranges, producer, number) for level in levels]
        for file in files:
            if file.counts[RANGES]:
                try:
                    with_it = file.range_with(file.open(), self._guide(file), producer, number)
                except Corrupt as error:
                    self._damaged(file, error)
                    raise
                found.append(with_it)
        return [
            (int(row["topic_id"]), int(row["sequence"]) + number - int(row["first"]))
            for rows in found
            for row in rows
        ]

    def _rows(self, file: IndexFile, guide: Guide, section: int, value: int) -> IndexRows:
        try:
            return file.with_hash(file.open(), guide, section, value)
        except Corrupt as error:
            self._damaged(file, error)
            raise

    def _guide(self, file: IndexFile) -> Guide:
        guide = self._guides.get(file.base)
        if guide is None:
            try:
                guide = file.load_guide(file.open())
            except Corrupt as error:
                self._damaged(file, error)
                raise
            self._guides[file.base] = guide
            while sum(known.size for known in list(self._guides.values())) > GUIDES_SIZE_MAX:
                self._guides.pop(next(iter(self._guides)), None)
        return guide

    def _damaged(self, file: IndexFile, error: Corrupt) -> None:
        """Out with it; the log tells all of it again."""
        log.error("an index file is damaged and is made again", error=error.message)
        with self._lock:
            if file in self._files:
                self._files = [other for other in self._files if other is not file]
                self._guides.pop(file.base, None)
                self._miss(file.base, file.end)
                self._disk.unlink(file.path)


def _merged(levels: tuple[IndexColumns, ...], new: IndexColumns) -> tuple[IndexColumns, ...]:
    """Few levels, each at least twice as large as the next."""
    rest = list(levels)
    while rest and rest[-1].row_count <= 2 * new.row_count:
        new = ordered(joined([rest.pop(), new]))
    return (*rest, new)


def _matches(rows: IndexRows, hashes: Hashes) -> list[tuple[int, EntryPlace]]:
    low = np.searchsorted(rows["hash"], hashes, side="left")
    high = np.searchsorted(rows["hash"], hashes, side="right")
    return [
        (number, place)
        for number in np.flatnonzero(high > low).tolist()
        for place in _places(rows[low[number] : high[number]])
    ]


def _places(rows: IndexRows) -> list[EntryPlace]:
    return list(zip(rows["topic_id"].tolist(), rows["sequence"].tolist(), strict=True))
