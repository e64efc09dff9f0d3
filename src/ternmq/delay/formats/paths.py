"""Where every file of a delay server lives. No other module builds a path or parses a name.

<data directory>/delay/
    schedule/00001800000000000.log   messages due in the hour that starts at this UTC millisecond
    dispatch/00001800000000000.log   what was decided about them: intents, cancels, new times
    decisions/00000000000000000000.log  every decision in its order, until it lies in dispatch logs
    wal.mark, decisions.mark         how much of each log was on disk
    epochs                           which master wrote which part of both logs
    base/                            files that a new replica is getting from its master
    checkpoint                       how far each file is on disk, and what left for good
    checkpoint.copy                  the same once more
    producers                        which batches each producer has already sent
    quarantine/                      bytes that should have been good and were not, with reports
<delay_wal_dir, or data directory/delay/wal>/
    00000000000000000000.log         every delayed batch, in arrival order, until it is scheduled

Hours are named by number, never by a local time, so daylight saving changes nothing.
"""

from pathlib import Path

from ternmq.storage.files.paths import LOG_SUFFIX
from ternmq.storage.files.paths import Paths as StoragePaths

HOUR_DIGITS = 17  # Enough for every millisecond up to the year 9999, so that `ls` sorts by time.


class DelayPaths:
    """Names of all files of one delay server."""

    def __init__(self, directory: Path, wal: Path | None = None) -> None:
        self.directory = directory
        self.wal = wal or directory / "wal"
        self.schedule = directory / "schedule"
        self.dispatch = directory / "dispatch"
        self.decisions = directory / "decisions"
        self.wal_mark = directory / "wal.mark"
        self.decisions_mark = directory / "decisions.mark"
        self.epochs = directory / "epochs"
        self.base = directory / "base"
        self.base_complete = self.base / "complete"
        self.checkpoint = directory / "checkpoint"
        self.checkpoint_copy = directory / "checkpoint.copy"
        self.producers = directory / "producers"
        self.quarantine = directory / "quarantine"

    def directories(self) -> tuple[Path, ...]:
        return (
            self.directory,
            self.wal,
            self.schedule,
            self.dispatch,
            self.decisions,
            self.quarantine,
        )

    def base_directories(self) -> tuple[Path, ...]:
        return (self.base, self.base / "schedule", self.base / "dispatch")

    def for_recovery(self) -> StoragePaths:
        """What `storage.log.recovery` wants to know: where to put bytes that cannot be read."""
        return StoragePaths(self.directory)


def hour_name(hour: int) -> str:
    return f"{hour:0{HOUR_DIGITS}d}{LOG_SUFFIX}"


def hours_in(names: list[str]) -> list[int]:
    """The hours whose files are in a directory, earliest first; other names are ignored."""
    found = []
    for name in names:
        stem = name.removesuffix(LOG_SUFFIX)
        if stem != name and len(stem) == HOUR_DIGITS and stem.isascii() and stem.isdigit():
            found.append(int(stem))
    return sorted(found)
