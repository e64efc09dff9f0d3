"""How long messages of a group wait and are worked on, over all broker groups: `group_times`. Pure.

Brokers count in buckets, so what is said of a share of messages is exact to the bucket and guessed
within it. Counts of several brokers add up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ternmq.wire.inspection.times import GroupTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpread:
    """How long something took, by so many messages."""

    bounds_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """By bucket; one more than bounds, for what took longer than all of them."""

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def within(self, share: float) -> float | None:
        """This share of the messages took so many seconds at most; None where there is none."""
        wanted, below, low = self.rows * share, 0, 0.0
        if not self.rows:
            return None
        for bound, count in zip(self.bounds_s, self.counts, strict=False):
            if count and below + count >= wanted:
                return low + (bound - low) * max(0.0, wanted - below) / count
            below, low = below + count, bound
        return self.bounds_s[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitAndHandle:
    """From stored until handed out for the first time, and from handed out until acked."""

    wait: TimeSpread = field(default_factory=TimeSpread)
    """Of the last five to ten minutes, as is"""
    handle: TimeSpread = field(default_factory=TimeSpread)
    wait_ever: TimeSpread = field(default_factory=TimeSpread)
    """Since the brokers started, as is"""
    handle_ever: TimeSpread = field(default_factory=TimeSpread)


def wait_and_handle(answers: Sequence[GroupTimes]) -> WaitAndHandle:
    """All lanes of all broker groups together. Brokers that have other buckets than the first one
    (of another release) cannot be added to it and are left out."""
    if not answers:
        return WaitAndHandle()
    bounds = tuple(answers[0].bounds_s)
    lanes = [lane for each in answers if tuple(each.bounds_s) == bounds for lane in each.lanes]
    waits, handles = [lane.wait for lane in lanes], [lane.handle for lane in lanes]
    return WaitAndHandle(
        wait=_added(bounds, (each.recent for each in waits)),
        handle=_added(bounds, (each.recent for each in handles)),
        wait_ever=_added(bounds, (each.counts for each in waits)),
        handle_ever=_added(bounds, (each.counts for each in handles)),
    )


def _added(bounds: tuple[float, ...], every: Iterable[Sequence[int]]) -> TimeSpread:
    sums = [0] * (len(bounds) + 1)
    for counts in every:
        for at, count in enumerate(counts[: len(sums)]):
            sums[at] += count
    return TimeSpread(bounds_s=bounds, counts=tuple(sums))
