"""Wall clock, client CPU and broker CPU around one workload, and the bodies they are measured with.

Broker CPU is read from /proc for the server's whole process tree (ticks of 10 ms), client CPU from
getrusage of this process. A meter is used once: begin, then end.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from benchmarks.peers.process import tree_cpu_seconds

_STAMP_BYTES = 8


def stamp(due_ns: int, size: int) -> bytes:
    """A body of `size` bytes that begins with the moment it was due."""
    return due_ns.to_bytes(_STAMP_BYTES, "little") + b"x" * (size - _STAMP_BYTES)


def age_ns(body: bytes) -> int:
    """Nanoseconds since the moment a stamped body was due. The monotonic clock is machine-wide."""
    return time.monotonic_ns() - int.from_bytes(body[:_STAMP_BYTES], "little")


def due_batches(rate: int, count: int, size: int) -> Iterator[list[bytes]]:
    """Stamped bodies in the batches that fall due, with the wait for the next one in between.

    A late caller gets all that has fallen due meanwhile, stamped with when it was due and not with
    when it was sent, so a producer that cannot keep up shows as latency and hides nothing.
    """
    started = time.monotonic_ns()
    interval = 1_000_000_000 // rate
    sent = 0
    while sent < count:
        now = time.monotonic_ns()
        due = min(count, (now - started) // interval + 1)
        if due > sent:
            yield [stamp(started + index * interval, size) for index in range(sent, due)]
            sent = due
        else:
            yield []


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one meter saw. `began` and `ended` are on the machine-wide monotonic clock."""

    done: int
    began: float
    ended: float
    client_cpu: float
    broker_cpu: float


class Meter:
    """Counts one workload: at most `count` operations and at most `seconds` of time."""

    def __init__(
        self,
        *,
        count: int,
        seconds: float,
        broker_pids: Iterable[int] = (),
        before_begin: Callable[[], object] | None = None,
    ) -> None:
        self.count = count
        self.seconds = seconds
        self._pids = list(broker_pids)
        self._before_begin = before_begin
        self._stop_at = float("inf")
        self._began = 0.0
        self._client = 0.0
        self._broker = 0.0
        self.measured: Measured | None = None

    def begin(self) -> None:
        """Start the clocks; a meter shared by several processes waits for the others first."""
        if self._before_begin is not None:
            self._before_begin()
        self._broker = tree_cpu_seconds(self._pids)
        self._client = own_cpu_seconds()
        self._began = time.monotonic()
        self._stop_at = self._began + self.seconds

    def room(self, done: int) -> bool:
        """Whether to go on after `done` operations."""
        return done < self.count and time.monotonic() < self._stop_at

    def end(self, done: int) -> None:
        """Stop the clocks."""
        ended = time.monotonic()
        assert self._began > 0, "a meter ends only after it began"
        self.measured = Measured(
            done=done,
            began=self._began,
            ended=ended,
            client_cpu=own_cpu_seconds() - self._client,
            broker_cpu=tree_cpu_seconds(self._pids) - self._broker,
        )


def own_cpu_seconds() -> float:
    """User and system CPU seconds of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
