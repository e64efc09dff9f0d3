"""One batch at a consumer: which of its rows are delivered, and which are settled.

Rows are settled once: acked, given back for a retry, or rejected; later calls change nothing. A
delivery is shared by all message objects made from it; it never copies a body.
"""

from collections.abc import Generator
from functools import lru_cache
from math import inf
from typing import Any, Literal, NamedTuple, Protocol

from ternmq.batch.envelope import Envelope, read_errors
from ternmq.client.codecs.codec import Codec
from ternmq.client.model.durations import Duration, seconds_of
from ternmq.client.model.last_error import LastError, report, writable
from ternmq.client.model.times import time_from_ms
from ternmq.core.errors import BadRequest
from ternmq.core.retry import AFTER_MAX_MS


class SettleReceipt(Protocol):
    """What `ack`, `retry` and `reject` return: free when ignored; await it to be sure."""

    def __await__(self) -> Generator[Any, None, Any]: ...


class DeliverySource(Protocol):
    """Where a delivery came from, and where the outcomes of its rows go."""

    @property
    def thread(self) -> int:
        """The thread of the event loop; calls from others are passed on to it."""

    @property
    def flushing(self) -> SettleReceipt:
        """Await it to be sure."""

    def acked(self, delivery: "Delivery", row: int) -> SettleReceipt:
        """One row is handled; the hot path."""

    def started(self, delivery: "Delivery") -> None:
        """A row that was handed out alone is about to be shown."""

    def settle(
        self, delivery: "Delivery", rows: tuple[int, int], outcome: "Outcome"
    ) -> SettleReceipt:
        """A range of rows has an outcome."""

    def settle_later(
        self, delivery: "Delivery", rows: tuple[int, int], outcome: "Outcome"
    ) -> SettleReceipt:
        """Settle rows, from any thread."""


REASON_SIZE_MAX = 1024
AFTER_MAX_S = AFTER_MAX_MS / 1000


class Outcome:
    """What became of rows: 'ack', 'retry' after some time, 'reject' for good, 'back'."""

    __slots__ = ("after_ms", "error", "kind", "reason")

    def __init__(
        self,
        kind: Literal["ack", "retry", "reject", "back"],
        after_ms: int = 0,
        reason: object = "",
        error: BaseException | None = None,
    ) -> None:
        self.kind = kind
        self.after_ms = after_ms
        if error is not None and not reason:
            reason = f"{type(error).__name__}: {writable(error)}"
        self.reason = writable(reason)[:REASON_SIZE_MAX]
        self.error = report(error, self.reason if kind == "retry" else "")


ACK = Outcome("ack")
BACK = Outcome("back")  # Not looked at: ready for others at once, and no attempt was made.
BY_POLICY = Outcome("retry", -1)


@lru_cache(maxsize=64)
def _plain(after_ms: int) -> Outcome:
    """A retry without a reason: most handlers know a few delays."""
    return Outcome("retry", after_ms)


def retry_outcome(
    after: Duration | None, reason: str, error: BaseException | None = None
) -> Outcome:
    """Checked: come again after so many seconds, or (None) when the group's policy says."""
    silent = error is None and isinstance(reason, str) and not reason
    if after is None:
        return BY_POLICY if silent else Outcome("retry", -1, reason, error)
    after_ms = int(seconds_of("after", after, 0, AFTER_MAX_S) * 1000)
    return _plain(after_ms) if silent else Outcome("retry", after_ms, reason, error)


def reject_outcome(reason: str, error: BaseException | None = None) -> Outcome:
    return Outcome("reject", 0, reason, error)


class Fence(NamedTuple):
    """Grows with every hand-out of a message: the life of the broker, then the lease."""

    epoch: int
    lease: int


class Delivery:
    """The delivered rows of one batch. Row i has the sequence `base + i`."""

    __slots__ = (
        "alone",
        "attempts",
        "base",
        "batch",
        "broker_group",
        "codec",
        "epoch",
        "errors",
        "lane",
        "lease",
        "lost",
        "moved",
        "ranges",
        "remaining",
        "selection",
        "settled",
        "source",
        "topic",
        "until",
    )

    def __init__(
        self,
        envelope: Envelope,
        source: DeliverySource,
        codec: Codec | None,
        epoch: int = 0,
        broker_group: str = "",
        until: float = inf,
    ) -> None:
        self.broker_group = broker_group
        self.until = until
        """By the client's own clock (`core.clock.elapsed`): before that nobody else has these
        rows. Renewing puts it off."""
        self.batch = batch = envelope.batch
        self.base = batch.base_sequence
        self.lease = envelope.lease
        self.epoch = epoch
        self.lane = envelope.lane
        self.alone = envelope.alone
        """Poison detection: the broker hands out nothing else before it has this outcome."""
        self.selection = envelope.selection
        self.attempts = envelope.attempts
        self.errors = envelope.errors
        self.source = source
        self.codec = codec
        self.topic = batch.topic
        self.ranges = envelope.selection
        """What is shown to the application: the selection without rows it has in hand already."""
        self.lost = False
        """The lease is over; the rows may be with another consumer by now."""
        self.moved: dict[int, Delivery] | None = None
        """Rows in the application's hands that were delivered again, under a newer lease."""
        count = envelope.span
        self.settled = bytearray(count)
        if len(self.selection) == 1 and self.selection[0] == (0, count):
            self.remaining = count
        else:
            self.settled = bytearray(b"\1") * count
            for first, end in self.selection:
                self.settled[first:end] = bytes(end - first)
            self.remaining = sum(end - first for first, end in self.selection)

    def attempt(self, row: int) -> int:
        """How often this row has been handed out, this time included."""
        if not self.attempts:
            return 1
        at = 0
        for first, end in self.selection:
            if row < end:
                return self.attempts[at + row - first]
            at += end - first
        raise AssertionError("a message was made of a row that was not delivered")

    def last_error(self, row: int) -> LastError | None:
        """Why this row failed the last time, if that is known."""
        if not self.errors:
            return None
        sequence = self.base + row
        for first, end, kind, text, traceback, at_ms in read_errors(self.errors):
            if first <= sequence < end:
                return LastError(kind, text, traceback, time_from_ms(at_ms))
        return None

    def open_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of a row range that are not settled."""
        settled = self.settled
        if settled.find(1, first, end) < 0:
            return [(first, end)]
        found: list[tuple[int, int]] = []
        while True:
            first = settled.find(0, first, end)
            if first < 0:
                return found
            stop = settled.find(1, first, end)
            stop = end if stop < 0 else stop
            found.append((first, stop))
            first = stop


class NotLeased:
    """The source of messages from `read`: there is nothing to settle."""

    thread = 0
    flushing: SettleReceipt

    def acked(self, delivery: Delivery, row: int) -> SettleReceipt:
        raise _not_leased()

    def started(self, delivery: Delivery) -> None:
        """Ignored: no lease depends on it."""

    def settle(self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome) -> SettleReceipt:
        raise _not_leased()

    def settle_later(
        self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome
    ) -> SettleReceipt:
        raise _not_leased()


def _not_leased() -> BadRequest:
    return BadRequest("messages from read() belong to nobody: there is nothing to ack or retry")
