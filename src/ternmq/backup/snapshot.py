"""A data directory as it is at one moment, while its servers go on.

Every file gets a second name in a staging folder beside it (a hard link: no bytes are copied), so
that nothing vanishes while it is read. Logs count up to the end they have then; where a file is
longer, with room for more, that is the last record behind the log's mark. If a file came,
went or was replaced meanwhile the links are made anew, so states and the set of logs are of one
moment; logs are measured in the order of `inventory`. Small states are read at once: some are
written in place. A SQLite registry is copied by SQLite, last.

What is read is what a crash at that moment would have left: a start recovers from it. Never writes
to a file of a server; never stops one.
"""

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ternmq.backup.inventory import (
    ELSEWHERE,
    STAGING,
    belongs,
    is_log,
    is_registry,
    measured_after,
)
from ternmq.core.errors import BadRequest, Corrupt, Unavailable
from ternmq.core.units import MIB
from ternmq.storage.consume.batch_scan import MessageFormat
from ternmq.storage.files.log_mark import MARK_SUFFIX, decode

TRIES = 50
READ_AT_ONCE = MIB
REGISTRY_WAIT_S = 30.0
ROOMY = ("message", "wal")
"""Logs whose last file is longer than what is written."""
WALK_SIZE_MAX = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """One file: `size` bytes at `source`, or `content`."""

    path: PurePosixPath
    source: Path
    size: int
    mode: int
    version: tuple[int, int]
    """Inode and time of the last change: while both are the same a sealed log is the same."""
    content: bytes | None = None


@contextmanager
def snapshot(data_dir: Path) -> Iterator[list[SnapshotFile]]:
    """The files of a data directory at one moment, readable until the block ends."""
    if not data_dir.is_dir():
        raise BadRequest(f"{data_dir} is no directory; give the data directory of a server")
    staging = data_dir / STAGING
    with _alone(data_dir):
        try:
            yield _stable(data_dir, staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _alone(data_dir: Path) -> Iterator[None]:
    """One backup of a directory at a time; the operating system ends it with the process."""
    handle = os.open(data_dir, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Unavailable(f"another backup of {data_dir} is running; wait for its end") from None
    finally:
        os.close(handle)


def _stable(data_dir: Path, staging: Path) -> list[SnapshotFile]:
    for _ in range(TRIES):
        shutil.rmtree(staging, ignore_errors=True)
        before = _listed(data_dir)
        if not before:
            raise BadRequest(f"{data_dir} holds no data of a TernMQ server")
        try:
            files = _linked(data_dir, staging, before)
        except FileNotFoundError:
            continue
        if _listed(data_dir) == before and not is_cut(files):
            return files + _registries(data_dir, staging, before)
    raise Unavailable(
        f"{data_dir} changes too quickly to be copied, or a log has lost its end; try again in a "
        f"moment, and if it stays so: 'tern verify {data_dir}', and back up another member"
    )


def _listed(data_dir: Path) -> dict[PurePosixPath, int]:
    """Files that belong, and which inode each is."""
    found: dict[PurePosixPath, int] = {}
    for folder, folders, names in os.walk(data_dir):
        for name in (*folders, *names):
            if Path(folder, name).is_symlink():
                raise BadRequest(
                    f"{Path(folder, name)} is a symbolic link, and what it points to cannot be "
                    "kept while it is copied: stop the server and copy both folders"
                )
        for name in names:
            path = PurePosixPath(Path(folder, name).relative_to(data_dir).as_posix())
            if not belongs(path):
                continue
            try:
                found[path] = (data_dir / path).stat().st_ino
            except FileNotFoundError:
                continue
    return found


def _linked(data_dir: Path, staging: Path, listed: dict[PurePosixPath, int]) -> list[SnapshotFile]:
    files = []
    marks: dict[PurePosixPath, int] = {}
    for path in sorted(listed, key=lambda one: (measured_after(one), one)):
        if is_registry(path):
            continue
        target = staging / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(data_dir / path, target)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise BadRequest(
                f"{data_dir} cannot be backed up in place: {error.strerror}; it takes a file "
                "system with hard links, and the user that runs the server"
            ) from error
        file = _measured(path, target, marks.get(path.parent))
        files.append(file)
        if path.suffix == MARK_SUFFIX and file.content:
            with suppress(Corrupt):  # Then it was written in this moment, see `_cut`.
                marks[path.with_suffix("")] = decode(file.content, Path(path))[0]
    return files


def _measured(path: PurePosixPath, staged: Path, synced: int | None = None) -> SnapshotFile:
    """`synced`: how far the mark of its log says that it was written, a record's first byte."""
    about = staged.stat()
    at_once = not is_log(path) and about.st_size <= READ_AT_ONCE
    content = staged.read_bytes() if at_once else None
    size = about.st_size if content is None else len(content)
    if synced is not None and path.parent.name in ROOMY and path.stem.isdigit():
        size = _written(staged, size, max(0, synced - int(path.stem)))
    return SnapshotFile(
        path=path,
        source=staged,
        size=size,
        mode=about.st_mode & 0o777,
        version=(about.st_ino, about.st_mtime_ns),
        content=content,
    )


def _written(staged: Path, size: int, at: int) -> int:
    """Where the records behind `at` end; what is not whole is kept, room for more is not."""
    if not 0 < size - at <= WALK_SIZE_MAX:
        return size
    with staged.open("rb") as source:
        source.seek(at)
        rest = memoryview(source.read(size - at))
    form = MessageFormat()
    with suppress(Corrupt):
        while rest and (whole := form.size(rest)) <= len(rest):
            rest, at = rest[whole:], at + whole
    return at + len(bytes(rest).rstrip(b"\0"))


def is_cut(files: list[SnapshotFile]) -> bool:
    """Does a log end before its mark, or is it not there? Then it was cut in between, and they are
    of two moments; or bytes that were safe are missing."""
    ends: dict[PurePosixPath, int] = {}
    for file in files:
        if is_log(file.path) and file.path.stem.isdigit():
            ends[file.path.parent] = max(
                ends.get(file.path.parent, 0), int(file.path.stem) + file.size
            )
    for file in files:
        log = file.path.with_suffix("")
        if log not in ends and log.name == ELSEWHERE:
            continue
        if file.path.suffix == MARK_SUFFIX and file.content:
            try:
                synced, _ = decode(file.content, Path(file.path))
            except Corrupt:
                return True  # It was written in this moment.
            if synced > ends.get(log, 0):
                return True
    return False


def _registries(
    data_dir: Path, staging: Path, listed: dict[PurePosixPath, int]
) -> list[SnapshotFile]:
    files = []
    for path in sorted(filter(is_registry, listed)):
        target = staging / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with (
                closing(sqlite3.connect(data_dir / path, timeout=REGISTRY_WAIT_S)) as source,
                closing(sqlite3.connect(target)) as copy,
            ):
                source.backup(copy)
        except sqlite3.Error as error:
            raise Unavailable(f"the registry {path} cannot be copied: {error}") from error
        target.chmod((data_dir / path).stat().st_mode & 0o777)
        files.append(_measured(path, target))
    return files
