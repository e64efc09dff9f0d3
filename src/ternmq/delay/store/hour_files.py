"""One log file per hour, thousands of hours, few of them open: append, sync, read, recover, drop.

The schedule logs are one `HourFiles`, the dispatch logs another. Rules:

1. A failed write is undone (cut back and synced) before the next; if that fails too, or a sync
   fails, the whole log has `failed` until a restart: a failed sync is never tried again.
2. The log fails the same way when a synced file has lost its name, or `look` finds the directory
   gone: the file was removed under us, and what is written there is lost with the process.
3. A new file's directory is synced before a record in it counts as synced.
4. `ends` says how far each file is written, `synced` how far it is on disk.

Threads: one writer; `read` from any. Does not know what a record is.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

from ternmq.core.errors import Corrupt, DiskFailed, DiskFull, TernError
from ternmq.core.log import get_logger
from ternmq.delay.formats.paths import hour_name, hours_in
from ternmq.storage.files.disk import Buffer, Disk, File, removed, write_all
from ternmq.storage.files.paths import Paths
from ternmq.storage.log import recovery
from ternmq.storage.log.recovery import Gap, LogFormat, Visit
from ternmq.storage.log.recovery_report import RecoveryReport

log = get_logger()

FILES_OPEN_MAX = 64

Each = Callable[[Callable[[File], None], Sequence[File]], None]
"""Does something with each of some files and raises the first error, after all are done."""


def one_by_one(work: Callable[[File], None], files: Sequence[File]) -> None:
    for file in files:
        work(file)


class HourFiles:
    """The files of one directory."""

    def __init__(
        self, disk: Disk, directory: Path, *, files_open_max: int = FILES_OPEN_MAX
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.ends: dict[int, int] = {}
        self.synced: dict[int, int] = {}
        self.failed: TernError | None = None
        self._new: set[int] = set()  # Files whose name may not be on disk yet.
        self._files: OrderedDict[int, File] = OrderedDict()
        self._files_open_max = files_open_max
        self._lock = threading.Lock()

    def found(self) -> list[int]:
        """The hours that have a file; blocks."""
        return hours_in(self.disk.names(self.directory))

    @property
    def files_open(self) -> int:
        return len(self._files)

    # Writing

    def append(self, hour: int, buffers: Sequence[Buffer]) -> None:
        """Write at the end of an hour's file: all of it or, when this raises, nothing."""
        self._check()
        end = self.ends.get(hour)
        try:
            if end is None:
                file = self._open(hour, create=True)
                if file.size:
                    file.truncate(0)
                end = self.ends[hour] = self.synced[hour] = 0
                self._new.add(hour)
            file = self._open(hour)
            written = write_all(file, buffers, end)
        except (DiskFull, DiskFailed):
            self._undo(hour)
            raise
        self.ends[hour] = written

    def sync(self, hour: int) -> None:
        """All of an hour's file is on disk when this returns."""
        self._check()
        if hour in self._new:
            self._sync_names()
        end = self.ends.get(hour, 0)
        if self.synced.get(hour, 0) >= end:
            return
        try:
            self._sync(self._open(hour))
        except (DiskFull, DiskFailed) as error:
            raise self._fail(
                "an fsync failed; nothing after the last good one is trusted", error
            ) from None
        self.synced[hour] = end

    def behind(self, hour: int, length: int) -> bool:
        """Whether not all of the first `length` bytes are on disk."""
        return self.synced.get(hour, 0) < length or hour in self._new

    def sync_many(self, hours: Sequence[int], each: Each = one_by_one) -> None:
        """`sync` for all of these; the file system makes one commit of syncs side by side."""
        self._check()
        if not self._new.isdisjoint(hours):
            self._sync_names()
        todo = [hour for hour in hours if self.synced.get(hour, 0) < self.ends.get(hour, 0)]
        ends = [self.ends[hour] for hour in todo]
        try:
            each(self._sync, [self._open(hour) for hour in todo])
        except (DiskFull, DiskFailed) as error:
            raise self._fail(
                "an fsync failed; nothing after the last good one is trusted", error
            ) from None
        self.synced.update(zip(todo, ends, strict=True))

    def look(self) -> None:
        """Notice that the directory was removed under us; blocks."""
        if self.failed is None and not self.disk.exists(self.directory):
            self.failed = removed(self.directory)
            log.error("a directory was removed while it was in use", path=str(self.directory))

    def drop(self, hours: Sequence[int]) -> None:
        """Remove the files of these hours, durably."""
        for hour in hours:
            with self._lock:
                self._files.pop(hour, None)
            self.disk.unlink(self.directory / hour_name(hour))
            self.ends.pop(hour, None)
            self.synced.pop(hour, None)
            self._new.discard(hour)
        if hours:
            self.disk.sync_dir(self.directory)

    def _sync_names(self) -> None:
        try:
            self.disk.sync_dir(self.directory)
        except (DiskFull, DiskFailed) as error:
            raise self._fail("a directory could not be synced", error) from None
        self._new.clear()

    def _sync(self, file: File) -> None:
        file.sync()
        if file.gone:
            raise DiskFailed(
                f"a file in {self.directory} was removed or replaced while it was in use",
                removed=True,
            )

    def _check(self) -> None:
        if self.failed is not None:
            raise DiskFailed(self.failed.message, **self.failed.details)

    def _undo(self, hour: int) -> None:
        end = self.ends.get(hour)
        if end is None:
            return  # Not even created, or empty: the next try begins again.
        try:
            file = self._open(hour)
            file.truncate(end)
            file.sync()
        except (DiskFull, DiskFailed) as error:
            self._fail("a failed write could not be undone", error)

    def _fail(self, event: str, error: TernError) -> TernError:
        self.failed = DiskFailed(
            f"{event}: {error.message}; fix the disk and restart the delay server", **error.details
        )
        log.error(event, log=self.directory.name, error=error.message)
        return DiskFailed(error.message, **error.details)

    # Reading

    def read(self, hour: int, offset: int, size: int) -> bytes:
        """Bytes as stored, unchecked; raises `Corrupt` where they are not all there."""
        data = self._open(hour).pread(size, offset)
        if len(data) < size:
            raise Corrupt(
                f"{self.directory.name} log {hour}: {size} bytes at {offset} end after {len(data)}"
            )
        return data

    def _open(self, hour: int, *, create: bool = False) -> File:
        with self._lock:
            file = self._files.get(hour)
            if file is None:
                file = self.disk.open(self.directory / hour_name(hour), create=create)
                self._files[hour] = file
                if len(self._files) > self._files_open_max:
                    self._files.popitem(last=False)
            else:
                self._files.move_to_end(hour)
            return file

    def close(self) -> None:
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    # Recovery

    def recover(
        self,
        hour: int,
        *,
        start: int,
        durable: int,
        form: LogFormat,
        visit: Visit,
        story: tuple[Paths, RecoveryReport],
    ) -> list[Gap]:
        """Read one file from `start`; cut a torn tail, keep what was safe: the first `durable`
        bytes, and whatever its records say. Returns what of that cannot be read. A file that is
        gone or too short goes on behind what it had, so that no place in it is used twice."""
        path = self.directory / hour_name(hour)
        if not self.disk.exists(path):
            self.disk.open(path, create=True).close()
            self.disk.sync_dir(self.directory)
        file = OneFile(self.disk, path)
        found = recovery.scan(
            file, start=min(start, file.end), durable=durable, form=form, visit=visit
        )
        verdict = recovery.decide(found)
        recovery.repair(file, found, verdict, *story)
        self.ends[hour] = self.synced[hour] = file.end
        return verdict.holes


class OneFile:
    """A log that is a single file, as `storage.log.recovery` sees it."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.directory = path.with_suffix("")  # Names the hour in reports and quarantine.
        self.bases = [0]
        self.start = 0
        self.active_base = 0
        self._file = disk.open(path, create=False)
        self.end = self._file.size
        self.synced = 0

    def file(self, base: int) -> File:
        return self._file

    def physical_end(self, at: int) -> int:
        return self._file.size

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.pread(size, offset)
        if len(data) < size:
            raise Corrupt(f"{self.directory.name}: {size} bytes at {offset} end after {len(data)}")
        return data

    def cut(self, offset: int) -> None:
        if self._file.size > offset:
            self._file.truncate(offset)
            self._file.sync()
        self.end = offset

    def continue_at(self, offset: int) -> None:
        """Go on after a part that cannot be read; what is there stays there."""
        if self._file.size < offset:
            self._file.truncate(offset)
        self._file.sync()
        self.end = self.synced = offset
