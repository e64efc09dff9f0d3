"""What passes through a broker, counted by topic and group; nothing here decides anything (R25).

Counted once for each batch, group commit or pull, never for each message. Figures live in memory
and begin anew with the broker. They go when their topic or group goes.
"""

from collections.abc import Callable
from typing import Literal, get_args

from ternmq.broker.limits.meter import Meter
from ternmq.core.errors import DiskFailed, DiskFull, ReadOnly, TernError
from ternmq.wire.messages.stats import Rates

Reason = Literal["limit", "size", "closed", "paused", "disk_full", "store_failed", "read_only"]
REASONS: tuple[Reason, ...] = get_args(Reason)


class TrafficCounters:
    """Meters by number."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.sent: dict[int, Meter] = {}
        """By topic."""
        self.delivered: dict[int, Meter] = {}
        """By group."""
        self.refused: dict[int, dict[Reason, int]] = {}
        """By topic: messages refused at the door, by reason."""

    def stored(self, topic_id: int, rows: int, size: int) -> None:
        _count(self.sent, topic_id, rows, size, self._now())

    def handed_out(self, group_id: int, rows: int, size: int) -> None:
        _count(self.delivered, group_id, rows, size, self._now())

    def refuse(self, topic_id: int, reason: Reason, rows: int) -> None:
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

    def forget_group(self, group_id: int) -> None:
        self.delivered.pop(group_id, None)


def _count(meters: dict[int, Meter], number: int, rows: int, size: int, now: float) -> None:
    meter = meters.get(number)
    if meter is None:
        meter = meters[number] = Meter(now)
    meter.add(rows, size, now)
