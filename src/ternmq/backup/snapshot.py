"""A data directory as it is at one moment, while its servers go on.

Every file gets a second name in a staging folder beside it (a hard link: no bytes are copied), so
that nothing vanishes while it is read. Logs count up to the size they have then. If a file came,
went or was replaced meanwhile the links are made anew, so states and the set of logs are of one
moment; logs are measured in the order of `inventory`. Small states are read at once: some are
written in place. A SQLite registry is copied by SQLite, last.

What is read is what a crash at that moment would have left: a start recovers from it. Never writes
to a file of a server; never stops one.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ternmq.backup.inventory import STAGING, belongs, is_log, is_registry, measured_after
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.core.units import MIB

TRIES = 50
READ_AT_ONCE = MIB
REGISTRY_WAIT_S = 30.0


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
    try:
        yield _stable(data_dir, staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


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
        if _listed(data_dir) == before:
            return files + _registries(data_dir, staging, before)
    raise Unavailable(f"{data_dir} changes too quickly to be copied; try again in a moment")


def _listed(data_dir: Path) -> dict[PurePosixPath, int]:
    """Files that belong, and which inode each is."""
    found: dict[PurePosixPath, int] = {}
    for folder, _, names in os.walk(data_dir):
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
        files.append(_measured(path, target))
    return files


def _measured(path: PurePosixPath, staged: Path) -> SnapshotFile:
    about = staged.stat()
    at_once = not is_log(path) and about.st_size <= READ_AT_ONCE
    content = staged.read_bytes() if at_once else None
    return SnapshotFile(
        path=path,
        source=staged,
        size=about.st_size if content is None else len(content),
        mode=about.st_mode & 0o777,
        version=(about.st_ino, about.st_mtime_ns),
        content=content,
    )


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
