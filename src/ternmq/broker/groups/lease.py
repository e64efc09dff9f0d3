"""Rows that are not ready: with a consumer until a deadline, or waiting for their next attempt.

A lease belongs to the connection of its consumer, or it is *detached*: then it is nobody's, lasts
as long as was asked for whatever becomes of connections, and is settled by whoever has its key. The
lane keeps the lock only, so nothing that is stored or shown settles anything. Rows of a detached
lease may have deadlines of their own.

Plain values of the lane; moments are milliseconds of the clock that only goes forward.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from ternmq.core.errors import BadRequest
from ternmq.core.interval_map import IntervalMap
from ternmq.core.range_set import RangeSet
from ternmq.core.retry import delay_ms

DETACHED = -1  # The owner of a lease that belongs to no connection.
DETACHED_MS_MAX = 12 * 3_600_000
DEADLINE_STEP_MS = 100
LOCK_SIZE = 16


def lock_of(key: int) -> bytes:
    """What is kept of a key: it tells the key from others, and not what it is."""
    return blake2b(key.to_bytes(8, "little"), digest_size=LOCK_SIZE).digest()


def detached_ms(now: int, wanted_ms: int) -> int:
    """How long a detached lease lasts: deadlines of a group fall together, so that ten thousand
    leases are not ten thousand moments to look at them."""
    if not 0 < wanted_ms <= DETACHED_MS_MAX:
        raise BadRequest(f"lease_ms of a detached lease is 1 to {DETACHED_MS_MAX}")
    return -(-(now + wanted_ms) // DEADLINE_STEP_MS) * DEADLINE_STEP_MS - now


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
    lock: bytes = b""
    """Of a detached lease."""
    deadlines: IntervalMap[int] | None = None
    """Of a detached lease whose rows have several; `deadline` is not later than the first."""

    @property
    def vanished(self) -> bool:
        """The consumer is gone, rather than slow."""
        return self.owner == 0

    def opens(self, key: int | None) -> bool:
        """Is this its key?"""
        return bool(self.lock) and key is not None and compare_digest(self.lock, lock_of(key))

    def extend(self, first: int, end: int, deadline: int) -> list[tuple[int, int, int]]:
        """Rows of it have another deadline from now on; returns those that it still has."""
        kept = self.rows.overlap(first, end)
        if self.deadlines is None:
            if sum(b - a for a, b, _ in kept) == self.rows.count:
                self.deadline = deadline
                return kept
            self.deadlines = IntervalMap((a, b, self.deadline) for a, b, _ in self.rows)
        for a, b, _ in kept:
            self.deadlines.put(a, b, deadline)
        self.deadline = min(until for _, _, until in self.deadlines)
        return kept

    def take_overdue(self, now: int) -> list[tuple[int, int, int]]:
        """Rows whose deadline is over leave the lease."""
        if self.deadlines is None:
            return self.rows.cut(*self.rows.bounds())
        over = [(a, b) for a, b, until in self.deadlines if until <= now]
        taken: list[tuple[int, int, int]] = []
        for a, b in over:
            self.deadlines.cut(a, b)
            taken += self.rows.cut(a, b)
        self.deadline = min((until for _, _, until in self.deadlines), default=now)
        return taken


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
