"""The disk as the storage sees it: a few verbs, two errors.

Everything above talks to `Disk` and `File`, so tests hand in `ternmq.testing.SimulatedDisk`, which
tears writes and loses what was not synced. `OSError` is translated here and nowhere else: no space
(ENOSPC, EDQUOT, EFBIG) becomes `DiskFull`, everything else `DiskFailed`.

A `RealFile` closes its descriptor when the last reference to it goes. A thread that reads keeps a
reference, so a file can be dropped from a cache at any moment and no descriptor is reused under a
reader. Never caches, never retries, never decides.
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from ternmq.core.errors import DiskFailed, DiskFull, TernError
from ternmq.core.units import KIB, MIB, align8
from ternmq.storage.files.paths import temporary

Buffer = bytes | bytearray | memoryview

IOV_MAX = 1024
LOOK_SIZE = 256 * KIB
STAT_EVERY = 100
ROOM = 8 * MIB
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What only Linux has, and what stands in elsewhere: a reader thread, fsync, a longer file.
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


def _best_sync() -> Callable[[int], object]:
    """What puts content and size of a file onto the disk here; fsync of macOS does not."""
    if hasattr(os, "fdatasync"):
        return os.fdatasync
    try:
        import fcntl

        full = fcntl.F_FULLFSYNC  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        return os.fsync
    return lambda fd: fcntl.fcntl(fd, full)


_sync = _best_sync()


class File(Protocol):
    """One open file."""

    @property
    def size(self) -> int: ...

    @property
    def gone(self) -> bool:
        """The name was removed, or is another file's: what is written here will not be found."""

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write at most IOV_MAX buffers; return how many bytes went in, maybe fewer than given."""

    def pread(self, size: int, offset: int) -> bytes:
        """Read; fewer bytes than asked for mean the end of the file."""

    def pread_nowait(self, size: int, offset: int) -> bytearray | None:
        """Read if all of it is in the page cache, else None at once."""

    def sync(self) -> None:
        """Return when content and size are on the disk (fdatasync)."""

    def truncate(self, size: int) -> None: ...

    def extend(self, size: int) -> None:
        """Make the file this long and give it the room for it; what is new reads as zeros."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A tree of directories."""

    @property
    def room(self) -> int:
        """So much longer than it has to be a file is made that grows by small records."""

    def open(self, path: Path, *, create: bool) -> File: ...

    def names(self, directory: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def mkdir(self, path: Path) -> None:
        """Make a directory and its parents, durably; fine if it is there."""

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def sync_dir(self, directory: Path) -> None:
        """Return when creations, renames and removals in here are on the disk."""

    def write_atomic(self, path: Path, content: Buffer) -> None:
        """Replace the file: after a crash the old content is there or the new, never a mixture."""

    def read(self, path: Path) -> bytes: ...

    def free(self, path: Path) -> tuple[int, int]:
        """Bytes free for us, and those with what is used, of the file system that holds `path`, or
        would, if it is gone."""


def translated(error: OSError, doing: str, path: Path) -> TernError:
    """Our error for an error of the operating system."""
    reason = error.strerror or str(error)
    if error.errno in _NO_SPACE:
        return DiskFull(f"no space left while {doing} {path}: {reason}", errno=error.errno)
    return DiskFailed(f"the disk failed while {doing} {path}: {reason}", errno=error.errno)


class RealFile:
    """A file descriptor and the path it came from, for error texts."""

    __slots__ = ("_fd", "_link", "_looks", "_name", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._link = f"/proc/self/fd/{fd}"
        self._name: str | None = None
        """As the kernel calls the file; not known before somebody asks whether it is gone."""
        self._looks = 0

    def __del__(self) -> None:
        self.close()

    @property
    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise translated(error, "looking at", self.path) from error

    @property
    def gone(self) -> bool:
        """By the name that the kernel knows the descriptor by, which says "(deleted)" or another
        one then. The file itself is looked at now and then, and where there is no `/proc`: who was
        told when a file was changed makes the next write note the time anew, to the nanosecond, and
        the next sync write it down (Linux 6.13 and later). Measured: a third of a sync."""
        self._looks += 1
        try:
            name = os.readlink(self._link)  # noqa: PTH115
        except OSError:
            name = None
        if name is not None and name == self._name and self._looks % STAT_EVERY:
            return False
        self._name = None
        try:
            if os.stat(self.path).st_ino != os.fstat(self._fd).st_ino:  # noqa: PTH116
                return True
            self._name = name
            return False
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            raise translated(error, "looking at", self.path) from error

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        try:
            return os.pwritev(self._fd, buffers, offset)
        except OSError as error:
            raise translated(error, "writing", self.path) from error

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._fd, size, offset)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise translated(error, "reading", self.path) from error

    def pread_nowait(self, size: int, offset: int) -> bytearray | None:
        if not _RWF_NOWAIT:
            return None  # Not to be had without waiting here.
        data = bytearray(size)
        try:
            done = os.preadv(self._fd, [data], offset, _RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise translated(error, "reading", self.path) from error
        return data if done == size else None

    def sync(self) -> None:
        try:
            _sync(self._fd)
        except OSError as error:
            raise translated(error, "syncing", self.path) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise translated(error, "cutting", self.path) from error

    def extend(self, size: int) -> None:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._fd, 0, size)
            else:
                os.ftruncate(self._fd, size)
        except OSError as error:
            raise translated(error, "making room in", self.path) from error

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealDisk:
    """The machine's file systems."""

    room = ROOM
    """See decision 0032."""

    def open(self, path: Path, *, create: bool) -> RealFile:
        return RealFile(path, self.descriptor(path, create=create))

    def descriptor(self, path: Path, *, create: bool) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return os.open(path, flags, 0o640)
        except OSError as error:
            raise translated(error, "opening", path) from error

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(os.listdir(directory))  # noqa: PTH208 names are wanted, not paths
        except OSError as error:
            raise translated(error, "listing", directory) from error

    def exists(self, path: Path) -> bool:
        return path.exists()

    def mkdir(self, path: Path) -> None:
        if path.is_dir():
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise translated(error, "making", path) from error
        self.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        try:
            source.replace(target)
        except OSError as error:
            raise translated(error, "renaming", source) from error

    def unlink(self, path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise translated(error, "removing", path) from error

    def sync_dir(self, directory: Path) -> None:
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise translated(error, "syncing", directory) from error

    def write_atomic(self, path: Path, content: Buffer) -> None:
        write_atomic(self, path, content)

    def read(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise translated(error, "reading", path) from error

    def free(self, path: Path) -> tuple[int, int]:
        try:
            figures = os.statvfs(path)
        except FileNotFoundError:
            return self.free(path.parent)
        except OSError as error:
            raise translated(error, "asking for the free space of", path) from error
        used = figures.f_blocks - figures.f_bfree
        free = figures.f_bavail  # What only root may use is neither: as `df` counts.
        return free * figures.f_frsize, (used + free) * figures.f_frsize


def removed(path: Path) -> DiskFailed:
    """The error of a file or directory that was removed while it is written to."""
    return DiskFailed(
        f"{path} was removed or replaced while it was in use; nothing more is stored: bring the "
        "data back, then restart this server",
        removed=True,
    )


def is_removed(error: TernError) -> bool:
    """Files are gone, so that what was safe is lost here; not only that a disk does not work."""
    return bool(error.details.get("removed"))


def data_end(file: File, start: int = 0) -> int:
    """Where the bytes of a file end that are not zero, rounded up to eight; at least `start`."""
    end = file.size
    while end > start:
        low = max(start, end - LOOK_SIZE)
        used = len(file.pread(end - low, low).rstrip(b"\0"))
        if used:
            return min(file.size, align8(low + used))
        end = low
    return start


def write_all(file: File, buffers: Sequence[Buffer], offset: int) -> int:
    """Write every byte; return the offset after the last. A short write is continued."""
    for start in range(0, len(buffers), IOV_MAX):
        chunk = buffers[start : start + IOV_MAX]
        wanted = sum(map(len, chunk))
        done = file.pwritev(chunk, offset)
        if done < wanted:
            done = _write_rest(file, b"".join(chunk), done, offset)
        offset += done
    return offset


def _write_rest(file: File, data: bytes, done: int, offset: int) -> int:
    view = memoryview(data)
    while done < len(data):
        step = file.pwritev([view[done:]], offset + done)
        if step <= 0:
            raise DiskFailed(f"a write at byte {offset + done} made no progress")
        done += step
    return done


def write_atomic(disk: Disk, path: Path, content: Buffer) -> None:
    """How any `Disk` replaces a file: write beside it, sync, rename, sync the directory."""
    beside = temporary(path)
    file = disk.open(beside, create=True)
    try:
        file.truncate(0)
        write_all(file, [content], 0)
        file.sync()
    finally:
        file.close()
    disk.rename(beside, path)
    disk.sync_dir(path.parent)
