"""Makes a backup: what the vault does not have yet is copied, the manifest comes last.

A sealed log that was in the backup before (same inode, same time of change, same size) is not even
read again; parts that the vault has under their hash are not written again. So a backup every few
minutes costs what was stored since. `rate` holds it back for the sake of the servers' disk.
"""

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from ternmq.backup.backup_store import BackupStore
from ternmq.backup.manifest import (
    FORMAT,
    PART_SIZE,
    PREFIX,
    SUFFIX,
    BackedUpFile,
    BackupManifest,
    from_json,
    manifest_path,
    name_of,
    object_path,
    to_json,
)
from ternmq.backup.progress import Progress, counted, silent
from ternmq.backup.snapshot import SnapshotFile, snapshot
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, Corrupt
from ternmq.core.process import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """What a backup cost."""

    name: str
    files: int
    size: int
    copied: int


def back_up(
    data_dir: Path, vault: BackupStore, *, clock: Clock, rate: int = 0, progress: Progress = silent
) -> BackupResult:
    """Copy a data directory as it is now; `rate` is bytes a second, 0 as fast as it goes."""
    with snapshot(data_dir) as files:
        check_whole(files)
        name = name_of(clock.now_ms())
        before = _known(vault, str(data_dir.resolve()))
        entries, copied, pace = [], 0, Pacer(rate)
        for file in counted(files, attrgetter("size"), progress):
            entry, written = _kept(vault, file, before, pace)
            entries.append(entry)
            copied += written
        manifest = BackupManifest(
            format=FORMAT,
            made_at=name,
            source=str(data_dir.resolve()),
            release=VERSION,
            files=entries,
        )
        vault.put(manifest_path(name), to_json(manifest))
    return BackupResult(name=name, files=len(entries), size=manifest.size, copied=copied)


class Pacer:
    """Holds reading to a rate, part by part."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._read = 0

    def passed(self, size: int) -> None:
        """So many bytes were read."""
        self._read += size
        if self._rate:
            time.sleep(max(0.0, self._read / self._rate - (time.monotonic() - self._began)))


def check_whole(files: list[SnapshotFile]) -> None:
    """A delay server whose message log lies elsewhere would be restored without it."""
    for file in files:
        if file.path.parent.name == "decisions" and not any(
            other.path.parent == file.path.parent.parent / "wal" for other in files
        ):
            raise BadRequest(
                f"{file.path.parent.parent} has no folder 'wal': its message log lies elsewhere "
                "(delay_wal_dir); stop the server and copy both folders"
            )


def backups(vault: BackupStore) -> list[str]:
    """Names of all backups, oldest first."""
    return [
        path.removeprefix(PREFIX).removesuffix(SUFFIX)
        for path in vault.names(PREFIX)
        if path.endswith(SUFFIX)
    ]


def read_manifest(vault: BackupStore, name: str) -> BackupManifest:
    return from_json(vault.get(manifest_path(name)), name)


def manifests(vault: BackupStore) -> list[BackupManifest]:
    """All backups, oldest first."""
    return [read_manifest(vault, name) for name in backups(vault)]


def forget_old(vault: BackupStore, keep: int, source: Path) -> int:
    """Keep the newest `keep` backups of a directory, and all of others; returns how many went."""
    found = manifests(vault)
    old = [one for one in found if one.source == str(source.resolve())][:-keep]
    if not old:
        return 0
    for one in old:
        vault.remove(manifest_path(one.made_at))
    kept = [one for one in found if one not in old]
    used = {object_path(part) for one in kept for file in one.files for part in file.parts}
    for path in vault.names("objects/"):
        if path not in used:
            vault.remove(path)
    return len(old)


def _known(vault: BackupStore, source: str) -> dict[str, BackedUpFile]:
    """Files of the newest backup of this directory."""
    for name in reversed(backups(vault)):
        try:
            manifest = read_manifest(vault, name)
        except Corrupt:
            continue  # `verify` says so; this one is whole without it.
        if manifest.source == source:
            return {file.path: file for file in manifest.files}
    return {}


def _kept(
    vault: BackupStore, file: SnapshotFile, before: dict[str, BackedUpFile], pace: Pacer
) -> tuple[BackedUpFile, int]:
    """The file's entry, and how many bytes had to be written for it."""
    known = before.get(str(file.path))
    same = known is not None and (known.version, known.size) == (file.version, file.size)
    if known is not None and same and all(vault.has(object_path(part)) for part in known.parts):
        return known, 0
    parts, written = [], 0
    for content in read(file):
        pace.passed(len(content))
        parts.append(hashlib.sha256(content).hexdigest())
        target = object_path(parts[-1])
        if not vault.has(target):
            vault.put(target, content)
            written += len(content)
    entry = BackedUpFile(
        path=str(file.path), size=file.size, parts=parts, mode=file.mode, version=file.version
    )
    return entry, written


def read(file: SnapshotFile) -> Iterator[bytes]:
    """As many bytes as it had at the moment of the snapshot, part by part."""
    if file.content is not None:
        yield file.content
        return
    left = file.size
    with file.source.open("rb") as source:
        while left:
            content = source.read(min(PART_SIZE, left))
            if len(content) < min(PART_SIZE, left):
                raise Corrupt(f"{file.path} became shorter while it was copied; try again")
            left -= len(content)
            yield content
