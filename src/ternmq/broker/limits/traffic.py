"""What passes through a broker, counted by topic and group; nothing here decides anything (R25).

Counted once for each batch, group commit or pull, never for each message. Counters live in memory
and begin anew with the broker. They go when their topic or group goes.

A rate is what passed lately. A window keeps what came in the current span of its width and in the
one before, and counts the older one by the part of it that still lies within the width. Two numbers
instead of one for every second: O(1) for a batch, and 50,000 topics fit in memory.
"""

from collections.abc import Callable
from typing import Literal, get_args

from ternmq.core.errors import DiskFailed, DiskFull, ReadOnly, TernError
from ternmq.wire.messages.stats import Rates

RefusalReason = Literal[
    "limit", "size", "closed", "paused", "disk_full", "store_failed", "read_only"
]
REASONS: tuple[RefusalReason, ...] = get_args(RefusalReason)
WIDTHS_S = (10.0, 60.0)
SENDERS_MAX = 1_000
"""Pairs of an application and a topic that are counted apart."""
OTHERS = ("", 0)


class RateWindow:
    """What came within the last `width` seconds."""

    __slots__ = ("_born", "_rows", "_rows_before", "_size", "_size_before", "_start", "_width")

    def __init__(self, width: float, now: float) -> None:
        self._width = width
        self._born = self._start = now
        self._rows = self._rows_before = 0
        self._size = self._size_before = 0

    def add(self, rows: int, size: int, now: float) -> None:
        if now - self._start >= self._width:
            self._roll(now)
        self._rows += rows
        self._size += size

    def rates(self, now: float) -> tuple[float, float]:
        """Messages and bytes a second; a meter younger than its width counts from its birth."""
        if now - self._start >= self._width:
            self._roll(now)
        share = 1.0 - (now - self._start) / self._width
        span = min(self._width, max(1.0, now - self._born))
        rows = self._rows + share * self._rows_before
        size = self._size + share * self._size_before
        return rows / span, size / span

    def _roll(self, now: float) -> None:
        spans = int((now - self._start) / self._width)
        self._rows_before, self._size_before = (self._rows, self._size) if spans == 1 else (0, 0)
        self._rows = self._size = 0
        self._start += spans * self._width


class Meter:
    """Rates over both widths, and everything so far."""

    __slots__ = ("_long", "_short", "rows", "size")

    def __init__(self, now: float) -> None:
        self._short, self._long = (RateWindow(width, now) for width in WIDTHS_S)
        self.rows = self.size = 0

    def add(self, rows: int, size: int, now: float) -> None:
        self._short.add(rows, size, now)
        self._long.add(rows, size, now)
        self.rows += rows
        self.size += size

    def rates(self, now: float) -> tuple[float, float, float, float]:
        """Messages and bytes a second over 10 s, then over 60 s."""
        return (*self._short.rates(now), *self._long.rates(now))


class TrafficCounters:
    """Meters of topics and groups, by their numbers."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.sent: dict[int, Meter] = {}
        """By topic."""
        self.delivered: dict[int, Meter] = {}
        """By group."""
        self.refused: dict[int, dict[RefusalReason, int]] = {}
        """By topic: messages refused at the door, by reason."""
        self.senders: dict[tuple[str, int], list[int]] = {}
        """By application and topic: messages and bytes."""

    def sent_by(self, app: str, topic_id: int, rows: int, size: int) -> None:
        """A batch of an application is stored."""
        known = self.senders.get((app, topic_id))
        if known is None:
            pair = (app, topic_id) if len(self.senders) < SENDERS_MAX else OTHERS
            known = self.senders.setdefault(pair, [0, 0])
        known[0] += rows
        known[1] += size

    def stored(self, topic_id: int, rows: int, size: int) -> None:
        _count(self.sent, topic_id, rows, size, self._now())

    def handed_out(self, group_id: int, rows: int, size: int) -> None:
        _count(self.delivered, group_id, rows, size, self._now())

    def refuse(self, topic_id: int, reason: RefusalReason, rows: int) -> None:
        reasons = self.refused.setdefault(topic_id, {})
        reasons[reason] = reasons.get(reason, 0) + rows

    def not_stored(self, topic_id: int, rows: int, error: TernError) -> None:
        """The log could not take a batch."""
        if isinstance(error, DiskFull):
            self.refuse(topic_id, "disk_full", rows)
        elif isinstance(error, ReadOnly):
            self.refuse(topic_id, "read_only", rows)
        elif isinstance(error, DiskFailed) or not error.retryable:
            self.refuse(topic_id, "store_failed", rows)

    def rates(self, meters: dict[int, Meter], number: int) -> Rates:
        meter = meters.get(number)
        if meter is None:
            return Rates()
        short_rows, short_size, long_rows, long_size = meter.rates(self._now())
        return Rates(
            messages_10s=round(short_rows, 1),
            bytes_10s=round(short_size, 1),
            messages_60s=round(long_rows, 1),
            bytes_60s=round(long_size, 1),
            messages=meter.rows,
            bytes=meter.size,
        )

    def forget_topic(self, topic_id: int) -> None:
        self.sent.pop(topic_id, None)
        self.refused.pop(topic_id, None)
        for pair in [pair for pair in self.senders if pair[1] == topic_id]:
            del self.senders[pair]

    def forget_group(self, group_id: int) -> None:
        self.delivered.pop(group_id, None)


def _count(meters: dict[int, Meter], number: int, rows: int, size: int, now: float) -> None:
    meter = meters.get(number)
    if meter is None:
        meter = meters[number] = Meter(now)
    meter.add(rows, size, now)
