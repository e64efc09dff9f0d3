"""Rows that are not ready: with a consumer until a deadline, or waiting for their next attempt.

Plain values of the lane; moments are milliseconds of the clock that only goes forward.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet
from ternmq.core.retry import delay_ms


@dataclass(slots=True)
class Lease:
    """Rows that a consumer holds until a moment. Owner 0: its connection is gone, for now."""

    id: int
    session: bytes
    owner: int
    deadline: int
    rows: IntervalMap[int] = field(default_factory=IntervalMap)
    started: RangeSet = field(default_factory=RangeSet)
    """Rows that the client said it began to handle; not all of them, it may have died first."""
    since: int = 0
    """When it was handed out; 0: in an earlier life of the broker."""

    @property
    def vanished(self) -> bool:
        """The consumer is gone, rather than slow."""
        return self.owner == 0


NEVER = 1 << 60  # Due only when an operator says so.


class Wait(NamedTuple):
    """Rows that come again: when, as which attempt, and since when (None: not by the policy)."""

    due: int
    attempt: int
    failed_at: int | None

    @property
    def stopped(self) -> bool:
        return self.due >= NEVER >> 1


@dataclass(frozen=True, slots=True)
class RetryRule:
    """How the rows of one verdict are retried; `explicit_ms` -1 leaves it to the policy."""

    policy: str
    attempts_max: int
    explicit_ms: int = -1
    chance: float = 0.0
    stops: bool = False
    """What failed too often stands still instead of dying; without a limit, at once."""

    def last(self, attempt: int) -> bool:
        """Was this the last attempt?"""
        limit = self.attempts_max or (1 if self.stops else 0)
        return limit > 0 and attempt >= limit

    def after(self, attempt: int) -> int:
        if self.explicit_ms >= 0:
            return self.explicit_ms
        return delay_ms(self.policy, attempt, self.chance)
