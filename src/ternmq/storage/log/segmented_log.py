"""One append-only log kept in segment files: append, read, roll, flush, cut, drop the oldest.

Every log of TernMQ is one of these. Rules that recovery relies on:

1. A segment is synced before the next one's file is created. So the name of the last segment is a
   proof that everything below it was on disk.
2. A new file's directory is synced before a record in it counts as written.
3. A failed write is undone before the next: new files removed and that synced, then the old file
   cut back to its last good end and synced. If undoing fails too, the log has `failed`.
4. A failed sync is final. The kernel may have dropped the pages and would call the next sync a
   success, so it is never tried again; reading goes on, a restart recovers.
5. A file whose name was removed can still be written and synced, and is lost with the process. So
   after a sync its name is looked at, and `look` does that from time to time where nobody writes.
6. A log with a mark (`files.log_mark`) raises it after each sync and lowers it before it is cut.
7. The active file may be longer than the log (`room`): a sync then has no size to write down, which
   is a third of its price. The rest is zeros; recovery knows them from records that are lost by the
   mark. A file gets its true size when the next one begins, when it is cut, and when it is closed.

Threads: one writer (write, sync, cut), one that drops, any number of readers. `bases` is replaced,
never changed, and open files are kept alive by whoever reads them. Does not know what a record is.
"""

import threading
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull, TernError
from ternmq.core.log import get_logger
from ternmq.storage.files import paths
from ternmq.storage.files.disk import Disk, File, data_end, removed, write_all
from ternmq.storage.files.log_mark import LogMark
from ternmq.storage.log.write_plan import FilePart, WritePlan

log = get_logger()

_NO_COUNT_LIMIT = 2**62


class SegmentedLog:
    """The bytes of one log. `end` is where the next record goes, `synced` how much is on disk."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        segment_size: int,
        records_max: int = _NO_COUNT_LIMIT,
        files_open_max: int = 64,
        room: int = 0,
        mark: LogMark | None = None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.segment_size = segment_size
        self.records_max = records_max
        self.files_open_max = files_open_max
        self._room = room
        self._roomy = 0
        """How long the active file was made; 0: not known."""
        self.bases: list[int] = paths.bases(disk.names(directory), paths.LOG_SUFFIX)
        self._renaming = threading.Lock()  # Who drops the oldest may be another thread.
        self._files: dict[int, File] = {}
        self.failed: TernError | None = None
        self.count = 0  # Records in the active segment; set by recovery.
        self.synced = 0
        self.safe = 0
        """Acknowledged, as whoever leads or follows with this log says; for the mark."""
        self.mark = mark
        if not self.bases:
            self._create(0)
        self._active: File = self.file(self.bases[-1])
        self.end = self.physical_end(len(self.bases) - 1)
        self.synced = self.bases[-1]  # Rule 1; recovery may raise it.

    @property
    def start(self) -> int:
        return self.bases[0]

    @property
    def active_base(self) -> int:
        return self.bases[-1]

    # Appending

    def plan(self) -> WritePlan:
        """Begin a group of appends; nothing is changed until `write`."""
        if self.failed is not None:
            raise DiskFailed(self.failed.message, **self.failed.details)
        return WritePlan(
            base=self.bases[-1],
            end=self.end,
            count=self.count,
            segment_size=self.segment_size,
            count_max=self.records_max,
        )

    def write(self, plan: WritePlan, *, sync: bool) -> None:
        """Write the plan's records; all of them or, when this raises, none."""
        if self.failed is not None:
            raise DiskFailed(self.failed.message, **self.failed.details)
        assert plan.parts[0].start == self.end, "two plans at a time"
        created: list[int] = []
        try:
            for part in plan.parts:
                if part.base != self.bases[-1]:
                    self._trim(part.base)
                    self._sync_active()
                    created.append(part.base)
                    self._create(part.base)
                if self._room and part.end - part.base > self._roomy:
                    self._extend(part)
                write_all(self._active, part.buffers, part.start - part.base)
        except (DiskFull, DiskFailed):
            if self.failed is None:
                self._undo(created)
            raise
        self.end = plan.end
        self.count = plan.count
        if created:
            self.synced = max(self.synced, self.bases[-1])
        if sync:
            self.sync()

    def _extend(self, part: FilePart) -> None:
        """Make room for more than is written now. Where that cannot be had (a disk nearly full, a
        file system that does not know how) this file goes on without."""
        size = part.end - part.base
        self._roomy = max(size, min(size + self._room, self.segment_size))
        try:
            self._active.extend(self._roomy)
        except (DiskFull, DiskFailed):
            self._active.truncate(part.start - part.base)
            self._roomy = self.segment_size

    def _trim(self, end: int) -> None:
        """Give the active file the size of what is written."""
        if self._roomy:
            self._active.truncate(end - self.bases[-1])
            self._roomy = 0

    def sync(self) -> None:
        """Everything written so far is on disk when this returns."""
        if self.failed is not None:
            raise DiskFailed(self.failed.message, **self.failed.details)
        end = self.end
        if self.synced < end:
            self._sync_active()
            self.synced = end
        if self.mark is not None:
            self.mark.note(self.synced, self.safe)

    def _sync_active(self) -> None:
        try:
            self._active.sync()
            gone = self._active.gone
        except (DiskFull, DiskFailed) as error:
            self.fail("an fsync failed; nothing after the last good one is trusted", error)
            raise DiskFailed(error.message, **error.details) from error
        if gone:
            raise self._removed()

    def look(self) -> None:
        """Notice that the active file was removed under us; any thread. What the writer itself
        removes is taken out of `_files` before."""
        if self.mark is not None:
            self.mark.settle()
        file = self._active
        if self.failed is None and file.gone and file in [*self._files.values()]:
            self._removed()

    def _removed(self) -> TernError:
        """The active file has no name any more."""
        path = paths.segment(self.directory, self.active_base)
        self.failed = error = removed(path)
        log.error("a file was removed while it was in use", path=str(path), synced=self.synced)
        return error

    def _undo(self, created: list[int]) -> None:
        try:
            if created:
                self.bases = [base for base in self.bases if base not in created]
                self._remove_last(created)
                self._active = self.file(self.bases[-1])
            self._active.truncate(self.end - self.bases[-1])
            self._roomy = 0
            self._active.sync()
            self.synced = self.end
        except (DiskFull, DiskFailed) as error:
            self.fail("a failed write could not be undone", error)

    def _remove_last(self, bases: list[int]) -> None:
        """The newest first and each for good: a power cut never leaves a later one without one
        before it, which would look like a part of the log that is lost."""
        for base in reversed(bases):
            self._files.pop(base, None)
            self.disk.unlink(paths.segment(self.directory, base))
            self.disk.sync_dir(self.directory)

    def fail(self, event: str, error: TernError) -> None:
        """Nothing is written any more until a restart."""
        self.failed = DiskFailed(
            f"{event}: {error.message}; fix the disk and restart this server", **error.details
        )
        log.error(event, log=self.directory.name, error=error.message, synced=self.synced)

    def _create(self, base: int) -> None:
        file = self.disk.open(paths.segment(self.directory, base), create=True)
        if file.size:
            file.truncate(0)
        self._files[base] = self._active = file
        self._roomy = 0
        with self._renaming:
            self.bases = [*self.bases, base]
        try:
            self.disk.sync_dir(self.directory)
        except (DiskFull, DiskFailed) as error:
            self.fail("a directory could not be synced", error)
            raise DiskFailed(error.message, **error.details) from error

    # Reading

    def file(self, base: int) -> File:
        """The open file of a segment; at most `files_open_max` sealed ones stay open."""
        file = self._files.get(base)
        if file is None:
            file = self.disk.open(paths.segment(self.directory, base), create=False)
            self._files[base] = file
            if len(self._files) > self.files_open_max + 1:
                active = self.bases[-1]
                for oldest in list(self._files):
                    if oldest not in (active, base):
                        self._files.pop(oldest, None)
                        break
        return file

    def base_of(self, offset: int) -> int:
        bases = self.bases
        at = bisect_right(bases, offset) - 1
        if at < 0:
            raise Corrupt(f"offset {offset} is before the start of the log, {bases[0]}")
        return bases[at]

    def read(self, offset: int, size: int) -> bytes:
        """Bytes as stored, unchecked; raises `Corrupt` where they are not all there."""
        base = self.base_of(offset)
        data = self.file(base).pread(size, offset - base)
        while len(data) < size and data:
            base = offset + len(data)
            if base not in self.bases:
                break
            more = self.file(base).pread(size - len(data), 0)  # It goes on in the next file.
            if not more:
                break
            data += more
        if len(data) < size:
            raise Corrupt(
                f"{self.directory.name} log: {size} bytes at offset {offset} end after {len(data)}",
                offset=offset,
                size=size,
            )
        return data

    def read_some(self, offset: int, size: int) -> bytes:
        """Up to `size` written bytes from `offset`, fewer at the end of the log or of a file; none
        at the end. Any thread. Raises `Corrupt` before the start."""
        bases, end = self.bases, self.end
        at = bisect_right(bases, offset) - 1
        if at < 0:
            raise Corrupt(f"offset {offset} is before the start of the log, {bases[0]}")
        limit = bases[at + 1] if at + 1 < len(bases) and bases[at + 1] <= end else end
        return self.file(bases[at]).pread(max(0, min(size, limit - offset)), offset - bases[at])

    def read_nowait(self, offset: int, size: int) -> bytearray | None:
        """Read if the page cache has it all, else None."""
        base = self.base_of(offset)
        if base != self.base_of(offset + size - 1):
            return None  # Goes on in the next file, which is rare: let a thread do it.
        file = self._files.get(base)
        return None if file is None else file.pread_nowait(size, offset - base)

    def segment_end(self, at: int) -> int:
        """Where the segment number `at` ends in the log: at the next one's first byte."""
        return self.bases[at + 1] if at + 1 < len(self.bases) else self.end

    def physical_end(self, at: int) -> int:
        """How far the file of segment number `at` reaches."""
        base = self.bases[at]
        return base + self.file(base).size

    # Recovery and retention

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on, durably. Done again after a crash it goes on; an
        error is final."""
        try:
            self._cut(offset)
        except (DiskFull, DiskFailed) as error:
            self.fail("a log could not be cut", error)
            raise

    def _cut(self, offset: int) -> None:
        if self.mark is not None:
            self.mark.lower(offset)
        later = [base for base in self.bases[1:] if base > offset]
        if later:
            self._remove_last(later)
            self.bases = [base for base in self.bases if base not in later]
            self._active = self.file(self.bases[-1])
            self.count = self.records_max  # Not known any more: the next record begins a segment.
        if self._active.size >= offset - self.bases[-1]:
            # Also where it ends there already: a cut whose sync failed is seen, and not on disk.
            self._active.truncate(offset - self.bases[-1])
            self._roomy = 0
            self._active.sync()
        self.end = offset
        self.synced = min(self.synced, offset)
        if offset == self.bases[-1]:
            self.count = 0

    def continue_at(self, offset: int) -> None:
        """Go on in a new segment after a part that cannot be read; what is there stays there."""
        assert offset >= self.bases[-1]
        self._active.sync()
        if offset > self.bases[-1]:
            self._create(offset)
        self.end = self.synced = offset
        self.count = 0

    def give_up(self, error: TernError) -> None:
        """Nothing is written here any more; who tries is told this."""
        self.failed = error

    def begin_at(self, offset: int) -> None:
        """Let a log without a record begin here. Never are there two files, one of them too short:
        a crash leaves one file, or none, which is an empty log too."""
        assert self.start == self.end, "the log is not empty"
        if offset == self.start:
            return
        for base in self.bases:
            self._files.pop(base, None)
            self.disk.unlink(paths.segment(self.directory, base))
        self.disk.sync_dir(self.directory)
        self.bases = []
        self._create(offset)
        self.end = self.synced = offset
        self.count = 0

    def drop_before(self, offset: int) -> int:
        """Remove whole sealed segments that end at or before `offset`; return how many."""
        with self._renaming:
            bases = self.bases
            keep = 0
            while keep + 1 < len(bases) and bases[keep + 1] <= offset:
                keep += 1
            self.bases = bases[keep:]
        if keep:
            for base in bases[:keep]:
                self._files.pop(base, None)
                self.disk.unlink(paths.segment(self.directory, base))
            self.disk.sync_dir(self.directory)
        return keep

    def close(self) -> None:
        if self.failed is None:
            with suppress(DiskFull, DiskFailed):
                self._trim(self.end)
        for file in [*self._files.values()]:
            file.close()
        self._files.clear()
        if self.mark is not None:
            self.mark.close()


def log_end(disk: Disk, folder: Path) -> int:
    """Where the last file of a log ends, found without opening the log."""
    found = paths.bases(disk.names(folder), paths.LOG_SUFFIX) if disk.exists(folder) else []
    if not found:
        return 0
    return found[-1] + data_end(disk.open(paths.segment(folder, found[-1]), create=False))
