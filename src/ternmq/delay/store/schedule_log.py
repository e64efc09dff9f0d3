"""The schedule logs: whole messages, one file per hour, in the order in which they arrived.

Written from the message log by one thread. Scheduling a batch again after a crash adds only the
pieces that are missing: each file knows the last batch it has pieces of, and how many of them. Not
synced piece by piece: a checkpoint syncs, and until then the message log still has everything. Rows
of hours that are about to fire are synced at once, because an intent may only name rows on disk.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ternmq.batch.layout import FIXED_SIZE, STORED_SIZE_MAX, read_stamp
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.log import get_logger
from ternmq.delay.hours.hour import Hour
from ternmq.delay.hours.hour_index import IndexedRows, by_due, entry_of
from ternmq.delay.store.hour_files import HourFiles
from ternmq.delay.store.split_by_hour import HourPiece, place, split
from ternmq.storage.consume.batch_scan import MessageFormat

log = get_logger()

LOAD_SIZE = 2 * STORED_SIZE_MAX
PIECES_MAX = 2_048  # Scheduled in one step: each may be another file.
RECORDS_MAX = 4_096  # Loaded in one step, however small: each costs the event loop a little.


@dataclass(slots=True)
class _ScheduleTail:
    """How far an hour's file is."""

    rows: int = 0
    wal_offset: int = -1
    wal_pieces: int = 0


@dataclass(slots=True)
class Scheduled:
    """What one step added. With an error the step is tried again from `upto`."""

    upto: int
    entries: list[tuple[int, IndexedRows]] = field(default_factory=list)
    error: TernError | None = None
    damaged: int = 0
    stored_at_ms: int = 0
    """Of the last batch: none of the later ones is stored earlier."""


class Loaded(NamedTuple):
    """Some records of an hour. `whole`: there are no more, and all of them are on disk."""

    entries: list[IndexedRows]
    upto: int
    damaged: int
    """Bytes that cannot be read."""
    whole: bool
    rows: np.ndarray
    """By due time."""
    due_ms: np.ndarray


class ScheduleLog:
    """Adds rows to hours; used by the scheduling thread, read by others through `files`."""

    def __init__(
        self, files: HourFiles, hours: Iterable[Hour], *, hour_ms: int, floor_ms: int = 0
    ) -> None:
        """`hours` are there already."""
        self.files = files
        self.hour_ms = hour_ms
        self.floor_ms = floor_ms
        """No hour of this length starts earlier: one of another length was there, and is gone."""
        self._tails: dict[int, _ScheduleTail] = {
            hour.start: _ScheduleTail(hour.rows, hour.wal_offset, hour.wal_pieces) for hour in hours
        }

    def use_hours(self, hour_ms: int, floor_ms: int) -> None:
        """Hours are of this length from here on, and none of them starts before `floor_ms`."""
        if hour_ms != self.hour_ms:
            self.hour_ms = hour_ms
            self.floor_ms = floor_ms

    def write(self, data: bytes, wal_offset: int, near: Container[int]) -> Scheduled:
        """Schedule the batches of `data`, which lie at `wal_offset`; blocks. Never raises what a
        disk says: it is in the answer, with everything that was added before."""
        damaged = 0
        gathered: dict[int, list[HourPiece]] = {}
        origins: dict[int, list[tuple[int, bytes]]] = {}
        at, view, form, stored_at_ms, count = 0, memoryview(data), MessageFormat(), 0, 0
        while at < len(data) and count < PIECES_MAX:
            try:
                size = form.size(view[at:])
                batch = view[at : at + size]
                form.check(batch, wal_offset + at)
            except Corrupt as problem:
                log.error(
                    "a delayed batch cannot be read", offset=wal_offset + at, reason=problem.message
                )
                damaged += 1
                at = _next(view, form, at + 8, wal_offset)
                continue
            count += self._gather(batch, wal_offset + at, gathered, origins)
            stored_at_ms = read_stamp(batch).stored_at_ms
            at += size
        entries: list[tuple[int, IndexedRows]] = []
        try:
            for hour, pieces in gathered.items():
                entries += self._append(hour, pieces, origins[hour])
                if hour in near:
                    self.files.sync(hour)
        except TernError as error:
            return Scheduled(upto=wal_offset, entries=entries, damaged=damaged, error=error)
        return Scheduled(
            upto=wal_offset + at, entries=entries, damaged=damaged, stored_at_ms=stored_at_ms
        )

    def _gather(
        self,
        batch: memoryview,
        offset: int,
        gathered: dict[int, list[HourPiece]],
        origins: dict[int, list[tuple[int, bytes]]],
    ) -> int:
        """Put the pieces that are missing with their hours; return how many."""
        counts: dict[int, int] = {}
        added = 0
        for piece in split(batch, self.hour_ms, self.floor_ms):
            number = counts[piece.hour] = counts.get(piece.hour, 0) + 1
            tail = self._tails.get(piece.hour)
            if tail is not None and (
                offset < tail.wal_offset
                or (offset == tail.wal_offset and number <= tail.wal_pieces)
            ):
                continue
            gathered.setdefault(piece.hour, []).append(piece)
            origins.setdefault(piece.hour, []).append((offset, bytes(batch[:128])))
            added += 1
        return added

    def _append(
        self, hour: int, pieces: list[HourPiece], origins: list[tuple[int, bytes]]
    ) -> list[tuple[int, IndexedRows]]:
        tail = self._tails.get(hour) or _ScheduleTail()
        at, row = self.files.ends.get(hour, 0), tail.rows
        durable = self.files.synced.get(hour, 0)
        entries: list[IndexedRows] = []
        for piece, (offset, header) in zip(pieces, origins, strict=True):
            origin = read_stamp(header)
            place(piece, origin, wal_offset=offset, at=at, row=row, durable=durable)
            entries.append(entry_of(piece.batch))
            at += len(piece.batch)
            row += piece.row_count
        self.files.append(hour, [piece.batch for piece in pieces])
        for offset, _ in origins:
            tail.wal_pieces = tail.wal_pieces + 1 if tail.wal_offset == offset else 1
            tail.wal_offset = offset
        tail.rows = row
        self._tails[hour] = tail
        return [(hour, entry) for entry in entries]

    def forget(self, hours: list[int]) -> None:
        """Remove hours for good; blocks."""
        self.files.drop(hours)
        for hour in hours:
            self._tails.pop(hour, None)

    def load(self, hour: int, start: int) -> Loaded:
        """The records from `start` on, some megabytes of them; on the scheduling thread."""
        end = self.files.ends.get(hour, 0)
        if start >= end:
            self.files.sync(hour)
            return Loaded([], end, 0, True, *by_due([]))
        return self.read(hour, start, end)

    def read(self, hour: int, start: int, end: int) -> Loaded:
        """Read from any thread, up to `end`, which has been written."""
        data = self.files.read(hour, start, min(LOAD_SIZE, end - start))
        last = start + len(data) >= end
        view, form, at, damaged = memoryview(data), MessageFormat(), 0, 0
        entries: list[IndexedRows] = []
        while at < len(data) and len(entries) < RECORDS_MAX:
            if not last and len(data) - at < FIXED_SIZE:
                break  # The rest of it comes with the next step.
            try:
                length = form.size(view[at:])
                if at + length > len(data):
                    if not last:
                        break
                    raise Corrupt("a piece ends behind its file")
                form.check(view[at : at + length], start + at)
                entries.append(entry_of(view[at : at + length]))
                at += length
            except Corrupt as problem:
                log.error(
                    "a scheduled piece cannot be read",
                    hour=hour,
                    offset=start + at,
                    reason=problem.message,
                )
                found = _next(view, form, at + 8, start)
                damaged += found - at
                at = found
        return Loaded(entries, start + at, damaged, False, *by_due(entries))


def _next(view: memoryview, form: MessageFormat, at: int, base: int) -> int:
    """The next whole batch after a bad one; the end if there is none."""
    data = bytes(view)
    found = data.find(form.magic, at)
    while found >= 0:
        if found % 8 == 0:
            if len(data) - found < FIXED_SIZE:
                return found  # Whether it is one is seen with what follows.
            try:
                size = form.size(view[found:])
                if found + size > len(data):
                    return found
                form.check(view[found : found + size], base + found)
            except Corrupt:
                pass
            else:
                return found
        found = data.find(form.magic, found + 1)
    return len(data)
