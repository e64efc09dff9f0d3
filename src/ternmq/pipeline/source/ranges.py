"""Which rows a batch reads, and how they are split into tasks.

Pure and deterministic: a batch that is repeated after a failure gets the same tasks.

A limit is shared out in proportion to what each place has waiting; a small place is never starved.
Ranges are cut by `maxRecordsPerPartition` first, then until there are `minPartitions` of them.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ternmq.pipeline.positions import TopicPlace


class Range(NamedTuple):
    """Rows of one place: `first` included, `end` not."""

    place: TopicPlace
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


def limited(
    start: Mapping[TopicPlace, int], latest: Mapping[TopicPlace, int], rows: int
) -> dict[TopicPlace, int]:
    """Where a batch of about `rows` rows ends."""
    waiting = {place: end - start.get(place, 0) for place, end in latest.items()}
    total = sum(max(0, count) for count in waiting.values())
    if total <= rows:
        return dict(latest)
    ends: dict[TopicPlace, int] = {}
    for place, end in latest.items():
        first = start.get(place, 0)
        share = math.ceil(max(0, waiting[place]) * rows / total)
        ends[place] = max(first, min(end, first + share))
    return ends


Weigh = Callable[[TopicPlace, int, int, int], tuple[int, int]]
"""Place, first, end, bytes -> the sequence about so many bytes after `first`, and the bytes."""


def weighed(
    start: Mapping[TopicPlace, int], latest: Mapping[TopicPlace, int], size: int, weigh: Weigh
) -> dict[TopicPlace, int]:
    """Where a batch of about `size` stored bytes ends: equal shares, and what one place does not
    need goes to those after it; the place with the fewest rows comes first."""
    waiting = {place: end - start.get(place, 0) for place, end in latest.items()}
    ends = dict(latest)
    chosen = sorted((count, place) for place, count in waiting.items() if count > 0)
    for turn, (_, place) in enumerate(chosen):
        share = max(1, size // (len(chosen) - turn))
        ends[place], used = weigh(place, start.get(place, 0), latest[place], share)
        size = max(0, size - used)
    return ends


def split(ranges: list[Range], *, rows_max: int = 0, at_least: int = 0) -> list[Range]:
    """The tasks, in order."""
    ranges = sorted(each for each in ranges if each.rows > 0)
    total = sum(each.rows for each in ranges)
    if not total:
        return []
    target = rows_max or total
    if at_least > len(ranges):
        target = min(target, math.ceil(total / at_least))
    found: list[Range] = []
    for each in ranges:
        pieces = max(1, math.ceil(each.rows / target))
        cuts = [each.first + each.rows * n // pieces for n in range(pieces + 1)]
        found += [
            Range(each.place, first, end) for first, end in itertools.pairwise(cuts) if end > first
        ]
    return found
