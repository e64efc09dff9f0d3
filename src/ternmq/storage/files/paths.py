"""Where every file lives. No other module builds a path or parses a file name.

<data directory>/
    message/00000000000000000000.log     batches of all topics, in arrival order
    consume/00000000000000000000.table   where the batches of each topic are; one per sealed segment
    consume/00000000000000000000.tail    the same for the active segment, as far as checkpointed
    index/00000000000000000000.index     ids and keys of a stretch of the message log
    pull/00000000000000000000.log        what was handed out, acked and decided
    message.mark, pull.mark              how much of each log was on disk, see log_mark.py
    producers                            which batches each producer has already sent
    halves                               open transactions, and how others ended
    checkpoint                           how far all of it is on disk
    base                                 what an empty replica begins with, until it is installed
    epochs                               which master wrote which part of the logs
    member                               who this is in its broker group, see member.py
    reserve                              room for these small files on a full disk, see reserve.py
    floor                                where the message log begins since segments were removed
    placement                            which broker group has which order keys, as heard last
    unclean                              there while a broker runs; found at start means it crashed
    quarantine/                          bytes that should have been good and were not, with reports

Nothing here is named by user input. See docs/data-files.md for the bytes inside.
"""

from pathlib import Path

OFFSET_DIGITS = 20  # Enough for 2**63, so that `ls` sorts by offset.
LOG_SUFFIX = ".log"
TABLE_SUFFIX = ".table"
TAIL_SUFFIX = ".tail"
INDEX_SUFFIX = ".index"
TEMPORARY_SUFFIX = ".tmp"


class Paths:
    """Names of all files below one data directory."""

    __slots__ = (
        "base",
        "checkpoint",
        "consume",
        "directory",
        "epochs",
        "floor",
        "halves",
        "index",
        "message",
        "message_mark",
        "placement",
        "producers",
        "pull",
        "pull_mark",
        "quarantine",
        "unclean",
    )

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.message = directory / "message"
        self.consume = directory / "consume"
        self.index = directory / "index"
        self.pull = directory / "pull"
        self.message_mark = directory / "message.mark"
        self.pull_mark = directory / "pull.mark"
        self.placement = directory / "placement"
        self.quarantine = directory / "quarantine"
        self.producers = directory / "producers"
        self.halves = directory / "halves"
        self.base = directory / "base"
        self.checkpoint = directory / "checkpoint"
        self.epochs = directory / "epochs"
        self.floor = directory / "floor"
        self.unclean = directory / "unclean"

    def directories(self) -> tuple[Path, ...]:
        return (self.message, self.consume, self.index, self.pull, self.quarantine)

    def table(self, base: int) -> Path:
        return self.consume / f"{base:0{OFFSET_DIGITS}d}{TABLE_SUFFIX}"

    def tail(self, base: int) -> Path:
        return self.consume / f"{base:0{OFFSET_DIGITS}d}{TAIL_SUFFIX}"

    def indexed(self, base: int) -> Path:
        return self.index / f"{base:0{OFFSET_DIGITS}d}{INDEX_SUFFIX}"

    def quarantined(self, name: str) -> Path:
        return self.quarantine / name


def segment(directory: Path, base: int) -> Path:
    """The file of the segment that starts at byte `base` of the log kept in `directory`."""
    return directory / f"{base:0{OFFSET_DIGITS}d}{LOG_SUFFIX}"


def bases(names: list[str], suffix: str) -> list[int]:
    """The start offsets of the files with this suffix, lowest first; other names are ignored."""
    found = []
    for name in names:
        stem = name.removesuffix(suffix)
        if stem != name and len(stem) == OFFSET_DIGITS and stem.isascii() and stem.isdigit():
            found.append(int(stem))
    return sorted(found)


def temporary(path: Path) -> Path:
    """Where a file is written before it takes its name."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)
