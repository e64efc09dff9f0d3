"""The commit log of an archive: which Parquet files count, and how far each place is archived.

An archive is what its commits say, folded in the order of their numbers. A commit names the ranges
it adds and where each of them follows on; one that does not follow on (two archive jobs at once, a
job that comes back from the dead) is void as a whole, for every reader alike. So a row is in the
archive once, whoever wrote what. Pure: reading and writing the files is the work of `store`.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

SCHEMA_VERSION = 1
MESSAGES, DELIVERIES = "messages", "deliveries"


class ArchivePlace(NamedTuple):
    """One sequence that is archived, of a broker group: messages of a topic, delivery records of
    all topics, or of one."""

    kind: str
    topic: str
    broker_group: str


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file, and enough about it to pass it over."""

    path: str
    """Below the archive's root."""
    kind: str
    topic: str
    date: str
    broker_group: str
    first: int
    end: int
    rows: int
    size: int
    from_ms: int
    to_ms: int


class ArchivedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one place that a commit adds."""

    place: ArchivePlace
    after: int
    """The watermark that this follows on; -1 begins a place."""
    first: int
    """Larger than `after` where rows were gone before they were archived."""
    end: int
    lost: int = 0
    """Rows of it (of deliveries: bytes) that went while they were being read."""
    topic_id: int = 0
    """Which topic of that name; 0 in older logs, and for deliveries."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a task tells the job: a file it wrote, or that something was gone."""

    file: ArchivedFile | None = None
    broker_group: str = ""
    lost: int = 0
    """Bytes of delivery records of this group that went while they were being read."""
    unreadable: int = 0
    """Messages that were marked, since something of them cannot be read."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an archive."""

    number: int
    job: str
    made_at_ms: int
    ranges: list[ArchivedRange] = []
    added: list[ArchivedFile] = []
    removed: list[str] = []
    """Paths that were compacted into others, or are too old."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a place is archived, without a break except for what was gone."""

    first: int
    end: int
    missing: int = 0
    topic_id: int = 0


@dataclass(slots=True)
class ArchiveState:
    """An archive after some commits."""

    number: int = 0
    marks: dict[ArchivePlace, Watermark] = field(default_factory=dict)
    files: dict[str, ArchivedFile] = field(default_factory=dict)
    void: int = 0

    def add(self, commit: Commit) -> bool:
        """Fold one more commit; False if it is void."""
        assert commit.number == self.number + 1, (commit.number, self.number)
        self.number = commit.number
        if not self.allows(commit):
            self.void += 1
            return False
        for each in commit.ranges:
            known = self.marks.get(each.place)
            begin = each.first if known is None else known.first
            missing = 0 if known is None else known.missing + each.first - known.end
            self.marks[each.place] = Watermark(begin, each.end, missing + each.lost, each.topic_id)
        for path in commit.removed:
            del self.files[path]
        self.files |= {file.path: file for file in commit.added}
        return True

    def allows(self, commit: Commit) -> bool:
        """Does it follow on what is here, and are the files here that it removes?"""
        follows = all(self._after(each.place) == each.after for each in commit.ranges)
        return follows and all(path in self.files for path in commit.removed)

    def _after(self, place: ArchivePlace) -> int:
        known = self.marks.get(place)
        return -1 if known is None else known.end


def encode(commit: Commit) -> bytes:
    return msgspec.json.format(msgspec.json.encode(commit))


def decode(data: bytes) -> Commit:
    return msgspec.json.decode(data, type=Commit)
