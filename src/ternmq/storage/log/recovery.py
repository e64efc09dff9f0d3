"""Recovers a log after a crash: reads it, decides what to keep, cuts the rest, each apart.

`scan` reads records from a trusted offset to the end of the files and notes what does not check
(gaps) and the highest `durable_to` that any whole record carries. `decide` is pure: a gap that
begins below the durable mark was safe once, so it is a hole: kept, copied to quarantine, reported,
and the log goes on after it. The first gap at or above the mark is a torn tail: nobody was told
that it is safe, so the log is cut there. `repair` does it and then writes the kept tail above the
mark once more and syncs it, because after a failed fsync the page cache may show bytes that the
disk never got.

The last file may go on with zeros, room for records to come: they are no gap, the log ends before
them. Zeros below the mark are what is left of records, and a hole like any other.

Never deletes a byte that was safe. Never trusts a size before its checksum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull
from ternmq.core.log import get_logger
from ternmq.core.units import MIB, align8
from ternmq.storage.files.disk import Disk, File, data_end, write_all
from ternmq.storage.files.paths import Paths
from ternmq.storage.log.recovery_report import Hole, RecoveryReport, TornTail

log = get_logger()

CHUNK_SIZE = 4 * MIB
COPY_SIZE_MAX = 256 * MIB  # A larger hole is copied up to here; all of it stays in its segment.


class LogFormat(Protocol):
    """How to recognise a record of one log."""

    magic: bytes

    def size(self, data: memoryview) -> int:
        """The record's whole size, by its header; raise `Corrupt` if that makes no sense."""

    def check(self, data: memoryview, offset: int) -> int:
        """Check everything of the record at the start of `data`; return its `durable_to`."""


class OwnMarks:
    """A format whose `durable_to` counts only in records that this member wrote as master: one that
    came from another member speaks of that member's disk, and may be ahead of this one."""

    def __init__(self, form: LogFormat, is_own: Callable[[int], bool]) -> None:
        self._form = form
        self._is_own = is_own
        self.magic = form.magic

    def size(self, data: memoryview) -> int:
        return self._form.size(data)

    def check(self, data: memoryview, offset: int) -> int:
        mark = self._form.check(data, offset)
        return mark if self._is_own(offset) else 0


class Segments(Protocol):
    """The files of one log: `SegmentedLog`, or a log that is a single file."""

    bases: list[int]
    end: int
    synced: int

    @property
    def disk(self) -> Disk: ...

    @property
    def directory(self) -> Path: ...

    @property
    def start(self) -> int: ...

    @property
    def active_base(self) -> int: ...

    def file(self, base: int) -> File: ...

    def physical_end(self, at: int) -> int: ...

    def read(self, offset: int, size: int) -> bytes: ...

    def cut(self, offset: int) -> None: ...

    def continue_at(self, offset: int) -> None: ...


Visit = Callable[[int, memoryview, Corrupt | None], None]
"""Called with (offset, bytes, None) for a whole record, or with the reason for a bad one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Bytes between whole records."""

    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan found in the files of a log."""

    gaps: list[Gap]
    durable: int
    end: int
    """How far the files reach."""
    bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryVerdict:
    """What recovery does with the gaps and the end of a log."""

    end: int
    """Where the log goes on."""
    holes: list[Gap]
    torn: Gap | None
    new_segment: bool
    """The log goes on after a hole that reaches the end of its file."""


class _ScanWindow:
    """Bytes of one segment file from a moving place on."""

    def __init__(self, source: Segments, at: int, end: int) -> None:
        self._file = source.file(source.bases[at])
        self._base = source.bases[at]
        self._end = end
        self._start = 0
        self.data = b""
        self.bytes_read = 0

    def at(self, offset: int, size: int) -> int:
        """Make sure that `size` bytes from `offset` are in `data` (fewer at the end); where."""
        low = offset - self._start
        wanted = min(size, self._end - offset)
        if low < 0 or not self.data or low + wanted > len(self.data):
            count = min(max(CHUNK_SIZE, size), self._end - offset)
            self.data = self._file.pread(count, offset - self._base)
            self._start = offset
            self.bytes_read += len(self.data)
            low = 0
        return low

    def find(self, magic: bytes, offset: int) -> int:
        """The next place at or after `offset` that could start a record; the end if none."""
        while offset < self._end:
            low = self.at(offset, 8)
            while True:
                found = self.data.find(magic, low)
                if found < 0:
                    break
                place = self._start + found
                if place % 8 == 0:
                    return place
                low = found + 1
            last = self._start + len(self.data)
            offset = max(offset + 8, (last - len(magic) + 1) & ~7) if last < self._end else last
        return self._end


def scan(
    source: Segments,
    *,
    start: int,
    durable: int,
    form: LogFormat,
    visit: Visit,
    segment: int | None = None,
) -> Scan:
    """Read every record from `start`, which must be a record's first byte or the end.

    With `segment`, only that segment is read.
    """
    gaps: list[Gap] = []
    bytes_read = 0
    durable = max(durable, source.active_base)
    at = max(start, source.start)
    for number, base in enumerate(source.bases):
        last = number + 1 == len(source.bases)
        physical = source.physical_end(number)
        limit = physical if last else source.bases[number + 1]
        if (limit <= at and not last) or segment not in (None, number):
            continue
        end = min(physical, limit)
        window = _ScanWindow(source, number, end)
        at = max(at, base)
        if at > end:
            gaps.append(Gap(start=end, end=at, reason="the segment file is too short"))
        while at < end:
            size, mark, problem = _check(window, form, at, end)
            if problem is None:
                low = window.at(at, size)
                visit(at, memoryview(window.data)[low : low + size], None)
                durable = max(durable, mark)
                at += size
                continue
            found = _next_whole(window, form, at + 8, end)
            if found == end and last:
                found = end = limit = base + data_end(source.file(base), at - base)
                if at == end:
                    break
            low = window.at(at, size)
            visit(at, memoryview(window.data)[low : low + min(size, end - at)], problem)
            gaps.append(Gap(start=at, end=found, reason=problem.message))
            at = found
        if at < limit:
            gaps.append(Gap(start=at, end=limit, reason="the segment file is too short"))
            at = limit
        bytes_read += window.bytes_read
    return Scan(gaps=gaps, durable=durable, end=at, bytes_read=bytes_read)


def _check(
    window: _ScanWindow, form: LogFormat, at: int, end: int
) -> tuple[int, int, Corrupt | None]:
    """(size, durable_to, problem) of the record at `at`."""
    size = 0
    try:
        low = window.at(at, 4096)
        size = form.size(memoryview(window.data)[low:])
        if at + size > end:
            raise Corrupt(f"a record of {size} bytes ends after {end - at}")
        low = window.at(at, size)
        mark = form.check(memoryview(window.data)[low : low + size], at)
    except Corrupt as problem:
        return min(size or 4096, end - at), 0, problem
    return size, mark, None


def _next_whole(window: _ScanWindow, form: LogFormat, offset: int, end: int) -> int:
    while True:
        offset = window.find(form.magic, offset)
        if offset >= end:
            return end
        if _check(window, form, offset, end)[2] is None:
            return offset
        offset += 8


def keep_short_segments(source: Segments, below: int, paths: Paths, report: RecoveryReport) -> None:
    """Report sealed segments below a scan's start that are cut short: what is derived from them
    does not tell. Also of a start that went on behind a hole and did not come to its end: nobody
    else knows of it."""
    holes = []
    for number, end in enumerate(source.bases[1:]):
        there = source.physical_end(number) if end <= below else end
        if there < end:
            holes.append(Gap(start=there, end=end, reason="the segment file is too short"))
    keep_holes(source, holes, paths, report)


def decide(found: Scan) -> RecoveryVerdict:
    """Pure: which gaps are holes in safe data, and where the torn tail begins."""
    holes: list[Gap] = []
    for gap in found.gaps:
        if gap.start >= found.durable:
            return RecoveryVerdict(
                end=gap.start,
                holes=holes,
                new_segment=False,
                torn=Gap(start=gap.start, end=found.end, reason=gap.reason),
            )
        holes.append(gap)
    end = found.end
    if end < found.durable:
        holes.append(Gap(start=end, end=found.durable, reason="the segment file is too short"))
        end = found.durable
    reaches_end = bool(holes) and holes[-1].end >= end
    return RecoveryVerdict(
        end=align8(end) if reaches_end else end, holes=holes, torn=None, new_segment=reaches_end
    )


def repair(
    source: Segments, found: Scan, verdict: RecoveryVerdict, paths: Paths, report: RecoveryReport
) -> None:
    """Make the files agree with the verdict; afterwards everything that is left is on disk."""
    quarantine = Quarantine(source.disk, paths)
    keep_holes(source, verdict.holes, paths, report)
    torn = verdict.torn
    if torn is not None:
        rest = [gap for gap in found.gaps if gap.start >= torn.start]
        whole_after = sum(gap.end - gap.start for gap in rest) < torn.end - torn.start
        copied = quarantine.copy(source, torn, kind="torn") if whole_after else ""
        facts = _facts(source, torn, copied)
        report.cuts.append(TornTail(**facts))
        log.warning("torn tail cut", **facts)
        source.cut(torn.start)
    if verdict.new_segment:
        source.continue_at(verdict.end)
        return
    if source.physical_end(len(source.bases) - 1) > verdict.end:
        source.cut(verdict.end)  # Room that a crash has left.
    source.end = verdict.end
    _write_again(source, max(found.durable, source.active_base), verdict.end)


def keep_holes(source: Segments, holes: list[Gap], paths: Paths, report: RecoveryReport) -> None:
    """Copy what was safe and cannot be read to quarantine, and report it."""
    quarantine = Quarantine(source.disk, paths)
    for gap in holes:
        copied = quarantine.copy(source, gap, kind="corrupt")
        facts = _facts(source, gap, copied)
        report.holes.append(Hole(**facts))
        log.error("safe bytes cannot be read", **facts)


def _facts(source: Segments, gap: Gap, copied_to: str) -> dict[str, Any]:
    """What is reported of damage, and logged."""
    return {
        "log": source.directory.name,
        "offset": gap.start,
        "size": gap.end - gap.start,
        "reason": gap.reason,
        "copied_to": copied_to,
    }


def _write_again(source: Segments, start: int, end: int) -> None:
    file = source.file(source.active_base)
    for at in range(start, end, CHUNK_SIZE):
        data = source.read(at, min(CHUNK_SIZE, end - at))
        write_all(file, [data], at - source.active_base)
    if start < end:
        file.sync()
    source.synced = end


class Quarantine:
    """The folder where bad bytes are kept for people to look at."""

    def __init__(self, disk: Disk, paths: Paths) -> None:
        self._disk = disk
        self._paths = paths

    def copy(self, source: Segments, gap: Gap, *, kind: str) -> str:
        """Copy what is left of a gap, with a report beside it; return the copy's path, or ''."""
        stem = f"{source.directory.name}-{gap.start:020d}-{kind}"
        target = self._paths.quarantined(stem + ".bad")
        story = {
            "log": source.directory.name,
            "kind": kind,
            "offset": gap.start,
            "size": gap.end - gap.start,
            "reason": gap.reason,
        }
        report = self._paths.quarantined(stem + ".json")
        try:
            if kind == "corrupt" and self._copied(report) >= gap.end - gap.start:
                return str(target)  # Found at an earlier start; nothing is ever written there.
            file = self._disk.open(target, create=True)
            file.truncate(0)
            written = 0
            for number, base in enumerate(source.bases):
                first = max(gap.start, base)
                last = min(gap.end, source.physical_end(number), gap.start + COPY_SIZE_MAX)
                if number + 1 < len(source.bases):
                    last = min(last, source.bases[number + 1])
                for at in range(first, last, CHUNK_SIZE):
                    data = source.file(base).pread(min(CHUNK_SIZE, last - at), at - base)
                    written = write_all(file, [data], written)
            file.sync()
            file.close()
            self._disk.write_atomic(report, msgspec.json.encode(story | {"copied": written}))
        except (DiskFull, DiskFailed) as error:
            log.error("bad bytes could not be copied", **story, error=error.message)
            return ""
        return str(target)

    def _copied(self, report: Path) -> int:
        """How large a hole the report tells of; it is written after the copy is safe."""
        if not self._disk.exists(report):
            return 0
        try:
            return int(msgspec.json.decode(self._disk.read(report), type=dict[str, Any])["size"])
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            return 0

    def move(self, path: str, reason: str) -> None:
        """Put a derived file that does not check out of the way; it can be made again."""
        source = self._paths.consume / path
        log.error("bad file moved to quarantine", file=path, reason=reason)
        self._disk.rename(source, self._paths.quarantined(path + ".bad"))
        self._disk.sync_dir(self._paths.quarantine)
        self._disk.sync_dir(self._paths.consume)
