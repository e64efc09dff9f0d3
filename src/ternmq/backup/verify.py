"""Reads every log of a data directory record by record and says what is wrong.

Checksums, offsets, and that segments follow each other without a gap. A log may end in a record
that is not whole: the last write before a crash or before the moment of a backup; a start cuts it
off. It may not end before its mark, which says how much of it was safe. Anything else is damage.
Read only; of a stopped server, a restored backup, or a copy.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ternmq.backup.inventory import ELSEWHERE, LOG_ORDER, belongs
from ternmq.backup.progress import Progress, counted, silent
from ternmq.core.errors import Corrupt, ProtocolError
from ternmq.core.units import MIB
from ternmq.delay.formats.decision import DispatchFormat
from ternmq.delay.formats.journal_record import JournalFormat
from ternmq.storage.consume.batch_scan import MessageFormat
from ternmq.storage.files.disk import RealDisk, data_end
from ternmq.storage.files.log_mark import MARK_SUFFIX, decode
from ternmq.storage.files.paths import LOG_SUFFIX, bases, segment
from ternmq.storage.log.recovery import LogFormat
from ternmq.storage.log.replica_input import StreamFormat
from ternmq.storage.pull.record import PullFormat

WINDOW_SIZE = 16 * MIB
HOURS = ("schedule", "dispatch")
"""Folders with a log for each hour, which stands by itself."""
FORMATS: dict[str, Callable[[], StreamFormat]] = {
    "message": MessageFormat,
    "wal": MessageFormat,
    "schedule": MessageFormat,
    "pull": PullFormat,
    "dispatch": DispatchFormat,
    "decisions": JournalFormat,
}


@dataclass(slots=True)
class VerifiedLog:
    """What one log holds."""

    path: str
    records: int = 0
    size: int = 0
    torn: int = 0
    """Bytes of a last record that is not whole."""
    problems: list[str] = field(default_factory=list)


LogFiles = tuple[Path, list[tuple[int, Path]]]


def verify(data_dir: Path, *, progress: Progress = silent) -> list[VerifiedLog]:
    """Every log below a data directory; a meta server has none."""
    logs = list(_logs(data_dir))
    return [_verified(data_dir, *log) for log in counted(logs, _size, progress)]


def _logs(data_dir: Path) -> Iterator[LogFiles]:
    """Logs, each as files with the offset at which they begin."""
    for folder, _, names in os.walk(data_dir):
        path = Path(folder)
        inside = path.relative_to(data_dir)
        if belongs(PurePosixPath(inside / "any")):
            yield from ((log, []) for log in _gone(path, names))
        if path.name not in LOG_ORDER or not belongs(PurePosixPath(inside / "any")):
            continue
        if path.name in HOURS:
            for name in sorted(name for name in names if name.endswith(LOG_SUFFIX)):
                yield path / name, [(0, path / name)]
        elif (found := bases(names, LOG_SUFFIX)) or _marked(path):
            yield path, [(base, segment(path, base)) for base in found]


def _gone(folder: Path, names: list[str]) -> Iterator[Path]:
    """Logs of which only the mark is left."""
    for name in names:
        log = (folder / name).with_suffix("")
        if name.endswith(MARK_SUFFIX) and log.name != ELSEWHERE and not log.is_dir():
            yield log


def _size(log: LogFiles) -> int:
    return sum(path.stat().st_size for _, path in log[1])


def _marked(log: Path) -> int:
    """How much of a log was safe, as far as its mark is there and whole."""
    try:
        return decode(log.with_suffix(MARK_SUFFIX).read_bytes(), log)[0]
    except (OSError, Corrupt):
        return 0


def _verified(data_dir: Path, name: Path, files: list[tuple[int, Path]]) -> VerifiedLog:
    kind = name.parent.name if name.suffix == LOG_SUFFIX else name.name
    log = VerifiedLog(name.relative_to(data_dir).as_posix())
    end = files[0][0] if files else 0
    for base, path in files:
        if base != end:
            log.problems.append(f"bytes {end} to {base} are missing")
        last = path == files[-1][1]
        size = _scan(FORMATS[kind](), base, path, log, last=last)
        log.size, end = log.size + size, base + size
    if kind not in HOURS and end < (marked := _marked(name)):
        log.problems.append(f"bytes {end} to {marked} are missing: they were safe once")
    return log


def _scan(form: LogFormat, base: int, path: Path, log: VerifiedLog, *, last: bool) -> int:
    """Returns the size of the file, without the room for more that a crash may leave at its end."""
    at = 0
    try:
        for record in records(form, base, path):
            log.records += 1
            at += len(record)
    except (Corrupt, ProtocolError) as error:
        torn = torn_size(form, path, at, error) if last else None
        if torn is not None:
            log.torn = torn
            return at + torn
        log.problems.append(f"offset {base + at}: {error.message}")
        return path.stat().st_size
    return at


def records(form: LogFormat, base: int, path: Path) -> Iterator[memoryview]:
    """Records of one file, each checked; raises what is wrong with the first that is not whole."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as source:
        window, window_at = memoryview(b""), 0
        while at < size:
            if at - window_at + WINDOW_SIZE // 2 > len(window) and window_at + len(window) < size:
                source.seek(at)
                window, window_at = memoryview(source.read(WINDOW_SIZE)), at
            data = window[at - window_at :]
            whole = form.size(data)
            if whole > len(data):
                raise Corrupt(f"offset {base + at}: a record of {whole} bytes is cut off")
            form.check(data[:whole], base + at)
            yield data[:whole]
            at += whole


def problem_of(kind: str, base: int, parts: Iterable[bytes], *, last: bool) -> str:
    """What is wrong with the records of one file, which comes in parts; empty: nothing. The last
    one of a log may end in a record that is not whole."""
    form, data, at = FORMATS[kind](), memoryview(b""), 0
    for part in parts:
        data = memoryview(bytes(data) + part) if len(data) else memoryview(part)
        try:
            while len(data) >= form.header_size and (whole := form.size(data)) <= len(data):
                form.check(data[:whole], base + at)
                data, at = data[whole:], at + whole
        except (Corrupt, ProtocolError) as error:
            if last and _is_torn(form, data, error):
                return ""
            return f"offset {base + at}: {error.message}"
    if len(data) and not last:
        return f"offset {base + at}: a record is cut off"
    return ""


def torn_size(form: LogFormat, path: Path, at: int, error: Exception) -> int | None:
    """Of the last file of a log, which is not whole at `at`: how many bytes of a last write lie
    there; 0: only room for more; None: it is damage."""
    size = data_end(RealDisk().open(path, create=False), at) - at
    if size <= 0:
        return 0
    with path.open("rb") as source:
        source.seek(at)
        rest = memoryview(source.read(min(size, WINDOW_SIZE)))
    return size if _is_torn(form, rest, error) else None


def _is_torn(form: LogFormat, data: memoryview, error: Exception) -> bool:
    """Is this the last record, not written to its end?"""
    if isinstance(error, ProtocolError):
        return False
    try:
        return form.size(data) >= len(data)
    except Corrupt:
        return not any(data[4096:]) and len(data) < WINDOW_SIZE // 2
