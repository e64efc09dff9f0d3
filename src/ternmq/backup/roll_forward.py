"""Brings a restored backup forward to a moment between it and the next one.

What a crash leaves is logs that go further than everything derived from them, and a start recovers
from it. So each log of the earlier backup goes on with the bytes that it has in the later one, up
to the first record that is younger than the moment; states stay those of the earlier one. As after
a crash of all servers in that moment, a start brings tables, progress and schedules up to date.

Not derived from a log, and of the later backup: which master wrote what (`epochs`, as far as the
log goes now), who a member is (`member`), and a SQLite registry, in which topics and groups that
were made after the moment are deleted and those that were deleted after it are not. Their settings,
and documents, are as they were when the later backup was made.

Refuses, and says so, where the later backup does not continue the earlier one: bytes differ or were
removed in between, or a server has come. Never writes outside of the folder that is being restored.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ternmq.backup.inventory import REGISTRY, is_registry
from ternmq.backup.manifest import BackedUpFile, BackupManifest
from ternmq.backup.progress import Progress, counted, silent
from ternmq.backup.verify import FORMATS, records, torn_size
from ternmq.batch.layout import read_stamp
from ternmq.core.errors import BadRequest, Corrupt, ProtocolError, Unavailable
from ternmq.core.units import MIB
from ternmq.delay.formats.journal_record import parse as parse_decision
from ternmq.storage.files.paths import LOG_SUFFIX, OFFSET_DIGITS
from ternmq.storage.log import leader_epochs
from ternmq.storage.pull.record import decode as decode_record

MEMBER, EPOCHS = "member", "epochs"
PAIRS = (("message", "pull"), ("wal", "decisions"))
"""The two logs of a broker, and of a delay server: what their file `epochs` is about."""
MOMENTS: dict[str, Callable[[memoryview], int]] = {
    "message": lambda record: read_stamp(record).stored_at_ms,
    "wal": lambda record: read_stamp(record).stored_at_ms,
    "pull": lambda record: decode_record(record).at_ms,
    "decisions": lambda record: parse_decision(record).decision().at_ms,
}
"""When a record of each log was written."""
COMPARED_AT_ONCE = 4 * MIB
WHOLE = "--whole restores the earlier backup as it is"

WriteFile = Callable[[BackedUpFile, Path], None]
"""Writes a file of a backup to a path, checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Where to: a moment, and the backup after it, in which the logs go on."""

    at_ms: int
    later: BackupManifest


def roll_forward(
    earlier: BackupManifest,
    forward: Forward,
    folder: Path,
    write: WriteFile,
    *,
    progress: Progress = silent,
) -> None:
    """`folder` holds the earlier backup; afterwards what there was at the moment."""
    before, after = _segments(earlier), _segments(forward.later)
    if new := sorted(map(str, after.keys() - before.keys())):
        raise BadRequest(f"the earlier backup has no {', '.join(new)}; {WHOLE}")
    ends: dict[PurePosixPath, int] = {}
    steps = [(log, file) for log in before for file in _goes_on(log, before[log], after)]
    for log, file in counted(steps, lambda step: step[1].size, progress):
        base = _base(file)
        if ends.setdefault(log, base) < base:
            continue  # The moment lies in the segment before.
        last = file is after[log][-1]
        ends[log] = base + _extend(folder, log, file, write, forward.at_ms, last=last)
    for file in forward.later.files:
        path = PurePosixPath(file.path)
        if path.name in (MEMBER, EPOCHS) or is_registry(path):
            write(file, folder / path)
        if path.name == EPOCHS:
            _cut_epochs(folder / path, path.parent, ends)
        elif is_registry(path):
            _turn_back(folder / path, forward.at_ms)


def _segments(manifest: BackupManifest) -> dict[PurePosixPath, list[BackedUpFile]]:
    """Files of each log, in their order."""
    found: dict[PurePosixPath, list[BackedUpFile]] = {}
    for file in sorted(manifest.files, key=lambda one: one.path):
        path = PurePosixPath(file.path)
        stem = path.stem
        if path.suffix == LOG_SUFFIX and path.parent.name in MOMENTS and len(stem) == OFFSET_DIGITS:
            found.setdefault(path.parent, []).append(file)
    return found


def _base(file: BackedUpFile) -> int:
    return int(PurePosixPath(file.path).stem)


def _goes_on(
    log: PurePosixPath,
    before: list[BackedUpFile],
    logs: dict[PurePosixPath, list[BackedUpFile]],
) -> Iterator[BackedUpFile]:
    """Files of the later backup from the last one of the earlier on."""
    last = before[-1]
    after = [file for file in logs.get(log, []) if _base(file) >= _base(last)]
    if not after or after[0].path != last.path:
        raise BadRequest(
            f"{log} does not go on where the earlier backup ends: what was stored in between was "
            f"removed before the later one was made; {WHOLE}"
        )
    yield from after


def _extend(
    folder: Path,
    log: PurePosixPath,
    file: BackedUpFile,
    write: WriteFile,
    at_ms: int,
    *,
    last: bool,
) -> int:
    """Take over a segment as far as it is not younger; returns its size."""
    path = folder / file.path
    longer = path.with_name(f"{path.name}.longer")
    write(file, longer)
    size = _size_at(longer, log, _base(file), at_ms, last=last)
    if path.exists():
        size = max(size, _same(path, longer, log))
    with longer.open("r+b") as written:
        written.truncate(size)
        os.fsync(written.fileno())
    longer.replace(path)
    return size


def _size_at(path: Path, log: PurePosixPath, base: int, at_ms: int, *, last: bool) -> int:
    """Where the first record begins that is younger than the moment."""
    form, moment, at = FORMATS[log.name](), MOMENTS[log.name], 0
    try:
        for record in records(form, base, path):
            if moment(record) > at_ms:
                break
            at += len(record)
    except (Corrupt, ProtocolError) as error:
        if not last or torn_size(form, path, at, error) is None:
            raise Corrupt(f"{log} of the later backup: {error.message}; {WHOLE}") from error
    return at


def _same(path: Path, longer: Path, log: PurePosixPath) -> int:
    """How much of it the earlier backup has already: all of that stays, and must be the same."""
    held = 0
    with path.open("rb") as earlier, longer.open("rb") as later:
        while content := earlier.read(COMPARED_AT_ONCE):
            if content != later.read(len(content)):
                raise BadRequest(f"{log} was cut and written anew between the two backups; {WHOLE}")
            held += len(content)
    return held


def _cut_epochs(path: Path, server: PurePosixPath, ends: dict[PurePosixPath, int]) -> None:
    """Which master wrote what, as far as the logs go."""
    for pair in PAIRS:
        messages, second = (server / name for name in pair)
        if messages in ends:
            epochs = leader_epochs.decode(path.read_bytes())
            cut = replace(
                epochs,
                messages=epochs.messages.cut(ends[messages]),
                pulls=epochs.pulls.cut(ends.get(second, 0)),
            )
            path.write_bytes(leader_epochs.encode(cut))


def _turn_back(path: Path, at_ms: int) -> None:
    """Topics and groups as they were at the moment; numbers of later ones stay used."""
    try:
        with closing(sqlite3.connect(path)) as registry, registry:
            for table in ("topics", "groups"):
                registry.execute(
                    f"UPDATE {table} SET live_name = NULL, deleted_at_ms = created_at_ms "
                    "WHERE created_at_ms > ? AND live_name IS NOT NULL",
                    (at_ms,),
                )
                registry.execute(
                    f"UPDATE {table} SET live_name = name, deleted_at_ms = NULL "
                    "WHERE created_at_ms <= ? AND deleted_at_ms > ?",
                    (at_ms, at_ms),
                )
    except sqlite3.Error as error:
        raise Unavailable(f"{REGISTRY} of the later backup cannot be used: {error}") from error
