"""Outcomes of delivered rows that were not yet sent to the broker.

Acks in delivery order extend one open range: a million acked messages are a handful of entries.
Acks out of order are merged when they are taken. Pure memory; the subscription sends.
"""

from collections import deque
from itertools import accumulate, islice

from msgspec.structs import replace

from ternmq.client.model.delivery import Outcome
from ternmq.wire.messages.pull import Done

TAKEN_MAX = 10_000  # Acks in one request.
TAKEN_OTHERS_MAX = 500  # Other outcomes: a broker has some microseconds of work with each.
TAKEN_REASONS_MAX = 1_000_000  # And letters of their reasons: a request has to fit a frame.


class PendingAcks:
    """Settled rows, as ranges."""

    __slots__ = ("_acks", "_others", "_urgent", "end", "first", "lease")

    def __init__(self) -> None:
        self.lease = -1
        """Lease, first sequence and end of the range that the next ack probably extends."""
        self.first = 0
        self.end = -1
        self._acks: list[tuple[int, int, int]] = []
        self._others: deque[Done] = deque()
        self._urgent = False  # Of those, not all are retries.

    def __bool__(self) -> bool:
        return self.end >= 0 or bool(self._acks) or bool(self._others)

    def __len__(self) -> int:
        """Entries, not rows."""
        return (self.end >= 0) + len(self._acks) + len(self._others)

    @property
    def rows(self) -> int:
        """How many rows are settled and not yet sent."""
        count = sum(end - first for _, first, end in self._acks)
        count += sum(each.end - each.first for each in self._others)
        return count + (self.end - self.first if self.end >= 0 else 0)

    def leases(self) -> list[int]:
        """The leases of all these rows, each once."""
        found = dict.fromkeys(lease for lease, _, _ in self._acks)
        found.update(dict.fromkeys(each.lease for each in self._others))
        if self.end >= 0:
            found[self.lease] = None
        return list(found)

    def ack(self, lease: int, first: int, end: int) -> None:
        """Rows that do not extend the open range begin a new one."""
        if lease == self.lease and first == self.end:
            self.end = end
            return
        self._close()
        self.lease, self.first, self.end = lease, first, end

    def add(self, lease: int, first: int, end: int, outcome: Outcome) -> None:
        """Rows with an outcome of any kind."""
        if outcome.kind == "ack":
            self.ack(lease, first, end)
            return
        self._urgent = self._urgent or outcome.kind != "retry"
        done = Done(
            lease=lease,
            first=first,
            end=end,
            kind=outcome.kind,
            after_ms=outcome.after_ms,
            reason=outcome.reason,
            error=outcome.error,
        )
        last = self._others[-1] if self._others else None
        if last is not None and last.end == first:  # A million that fail alike are a few entries.
            whole = replace(last, end=end)
            if whole == replace(done, first=last.first):
                self._others[-1] = whole
                return
        self._others.append(done)

    @property
    def waiting(self) -> bool:
        """Are there outcomes that need an answer of their own: retries and rejections?"""
        return bool(self._others)

    @property
    def urgent(self) -> bool:
        """Are some of them rejected or given back, or enough of them to fill a request?"""
        return self._urgent or len(self._others) >= TAKEN_OTHERS_MAX

    def take_acks(self) -> list[Done]:
        """Remove and return acks only, merged, up to `TAKEN_MAX` entries: they ride on pulls."""
        self._close()
        if not self._acks:
            return []
        acks = _merged(self._acks)
        self._acks = acks[TAKEN_MAX:]
        return [Done(lease=lease, first=first, end=end) for lease, first, end in acks[:TAKEN_MAX]]

    def take(self) -> list[Done]:
        """Remove and return everything, up to `TAKEN_MAX` acks and `TAKEN_OTHERS_MAX` others."""
        letters = accumulate(_letters(each) for each in islice(self._others, TAKEN_OTHERS_MAX))
        fitting = max(1, sum(1 for sum_so_far in letters if sum_so_far <= TAKEN_REASONS_MAX))
        fitting = min(fitting, len(self._others))
        others = [self._others.popleft() for _ in range(fitting)]
        self._urgent = self._urgent and bool(self._others)
        return self.take_acks() + others

    def put_back(self, done: list[Done]) -> None:
        """Take acks back that may not have arrived; sending them twice does no harm."""
        self._acks += [(each.lease, each.first, each.end) for each in done if each.kind == "ack"]
        self._others.extendleft(each for each in reversed(done) if each.kind != "ack")
        self._urgent = self._urgent or any(each.kind not in ("ack", "retry") for each in done)

    def _close(self) -> None:
        if self.end >= 0:
            self._acks.append((self.lease, self.first, self.end))
            self.lease, self.end = -1, -1


def _letters(done: Done) -> int:
    return len(done.reason) + sum(map(len, done.error or ()))


def _merged(ranges: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    if len(ranges) == 1:
        return ranges
    ranges.sort()
    merged = [ranges[0]]
    for lease, first, end in ranges[1:]:
        last_lease, last_first, last_end = merged[-1]
        if lease == last_lease and first <= last_end:
            merged[-1] = (lease, last_first, max(end, last_end))
        else:
            merged.append((lease, first, end))
    return merged
