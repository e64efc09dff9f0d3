"""Puts a backup back as a data directory.

Everything is written into a folder beside the target and checked against its hash on the way; the
folder takes the target's name at the end. So a directory that is there is complete, and a restore
that failed can be started again. A moment between two backups is reached from the earlier one, with
what the logs of the later one have (`roll_forward`). Never writes into a directory that has
anything in it.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from pathlib import Path, PurePosixPath

from ternmq.backup.backup_store import NEW_FILE, BackupStore, sync_folder
from ternmq.backup.inventory import is_log
from ternmq.backup.job import manifests, read_manifest
from ternmq.backup.manifest import BackedUpFile, BackupManifest, object_path
from ternmq.backup.progress import Progress, counted, silent
from ternmq.backup.roll_forward import Forward, roll_forward
from ternmq.backup.verify import HOURS, problem_of
from ternmq.core.errors import BadRequest, Corrupt, Unavailable


def choose(vault: BackupStore, at: str | None, source: str | None = None) -> BackupManifest:
    """The newest backup, or the newest one at or before a moment (as backups are named)."""
    found = [one for one in manifests(vault) if source in (None, one.source)]
    if not found:
        raise BadRequest("there is no backup here; 'tern backup' makes one")
    sources = sorted({one.source for one in found})
    if len(sources) > 1:
        raise BadRequest(f"backups of several directories are here; say --source: {sources}")
    before = [one for one in found if at is None or one.made_at <= at]
    if not before:
        raise BadRequest(f"no backup is as old as that; the oldest is {found[0].made_at}")
    return before[-1]


def next_after(vault: BackupStore, manifest: BackupManifest, at: str) -> BackupManifest | None:
    """The first backup of the same directory that was made after a moment."""
    later = [one for one in manifests(vault) if one.source == manifest.source and one.made_at > at]
    return later[0] if later else None


def restore(
    vault: BackupStore,
    manifest: BackupManifest,
    target: Path,
    *,
    forward: Forward | None = None,
    progress: Progress = silent,
) -> None:
    """Write this backup to `target`, which must be empty or not there; with `forward` as things
    were at a moment after it."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadRequest(f"{target} is not empty; restore into a new directory")
    target = target.absolute()
    building = target.with_name(f"{target.name}.restoring")
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True, mode=0o700)
        for file in counted(manifest.files, attrgetter("size"), progress):
            _write(vault, file, building / file.path)
        if forward is not None:
            write = partial(_write, vault)
            roll_forward(manifest, forward, building, write, progress=progress)
        for folder, _, _ in os.walk(building):
            sync_folder(Path(folder))
        if target.exists():
            target.rmdir()
        building.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise Unavailable(f"cannot write {target}: {error.strerror}") from error
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write(vault: BackupStore, file: BackedUpFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, NEW_FILE, 0o600), "wb") as out:
        for part in file.parts:
            problem, content = _part(vault, part)
            if problem:
                raise Corrupt(f"{file.path}: {problem} in this backup; restore another with --at")
            out.write(content)
        size = out.tell()
        out.flush()
        os.fsync(out.fileno())
    if size != file.size:
        raise Corrupt(f"{file.path} has {size} bytes in this backup, not {file.size}")
    path.chmod(file.mode & 0o700 | 0o600)


def _part(vault: BackupStore, sha256: str) -> tuple[str, bytes]:
    """What is wrong with a part, and its bytes."""
    try:
        content = vault.get(object_path(sha256))
    except Corrupt:
        return "bytes are missing", b""
    if hashlib.sha256(content).hexdigest() != sha256:
        return "bytes are damaged", b""
    return "", content


def check_vault(vault: BackupStore, name: str, *, progress: Progress = silent) -> list[str]:
    """Read a whole backup; returns what is wrong with it, nothing if it can be restored. Bytes that
    were damaged on the disk of the server already are in it as they are: they are told, too."""
    files = read_manifest(vault, name).files
    newest = {PurePosixPath(file.path).parent: file.path for file in files}  # By path, so by time.
    problems = []
    for file in counted(files, attrgetter("size"), progress):
        path, parts = PurePosixPath(file.path), _CheckedParts(vault, file)
        problem = ""
        if is_log(path):
            by_hour = path.parent.name in HOURS
            last = by_hour or newest[path.parent] == file.path
            base = 0 if by_hour else int(path.stem)
            problem = problem_of(path.parent.name, base, parts, last=last)
        for _ in parts:
            pass
        problems += [f"{file.path}: {each}" for each in (*parts.problems, problem) if each]
    return problems


class _CheckedParts:
    """The parts of a file, one after the other; whoever stops early leaves the rest to the next."""

    def __init__(self, vault: BackupStore, file: BackedUpFile) -> None:
        self._parts = iter(file.parts)
        self._vault = vault
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            problem, content = _part(self._vault, part)
            if problem:
                self.problems.append(problem)
            yield content
