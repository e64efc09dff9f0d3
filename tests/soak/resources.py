"""What processes use while a soak runs, and whether that stays flat.

A sample is memory (without what the page cache lends), descriptors and threads of one process, read
from /proc. A process is judged by its own life: after a warm-up the last part of it is held against
the part before. Deciding is apart from reading, so that it has a test.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

SAMPLES_MIN = 16
"""Fewer say nothing about growth."""
MEMORY_SHARE = 0.2
MEMORY_SLACK = 24 << 20
COUNT_SLACK = 8


class Sample(NamedTuple):
    """One look at one process."""

    memory: int
    descriptors: int
    threads: int


class Growth(NamedTuple):
    """What a process used in the middle of its life and at the end of it."""

    before: Sample
    after: Sample

    @property
    def flat(self) -> bool:
        before, after = self
        return (
            after.memory <= before.memory * (1 + MEMORY_SHARE) + MEMORY_SLACK
            and after.descriptors <= before.descriptors + COUNT_SLACK
            and after.threads <= before.threads + COUNT_SLACK
        )


def growth(samples: Sequence[Sample]) -> Growth | None:
    """Of one life; None if it was too short. The first quarter is warm-up, the second is held
    against the last."""
    if len(samples) < SAMPLES_MIN:
        return None
    quarter = len(samples) // 4
    return Growth(_middle(samples[quarter : 2 * quarter]), _middle(samples[-quarter:]))


def _middle(samples: Sequence[Sample]) -> Sample:
    return Sample(*(int(median(values)) for values in zip(*samples, strict=True)))


def look(pid: int) -> Sample | None:
    """Of a process that may end while it is looked at."""
    folder = Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text(encoding="utf-8").splitlines()
        descriptors = len(list((folder / "fd").iterdir()))
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines)
    if "RssAnon" not in fields:
        return None  # Ended, and not waited for.
    return Sample(int(fields["RssAnon"].split()[0]) << 10, descriptors, int(fields["Threads"]))


def children(pid: int) -> dict[int, str]:
    """The processes that this one has started, and the commands they are."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            parent = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if int(parent) == pid:
            found[int(folder.name)] = b" ".join(command).decode(errors="replace")
    return found
