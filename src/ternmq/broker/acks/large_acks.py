"""Large acks: requests that fail many rows, settled a slice at a time to keep the loop free.

Such a request is milliseconds of work, and a storm of failures is thousands of them. They wait in
one line; a slice is settled in one turn of the loop, and then the loop is free for as long as that
took: a send of somebody else waits for one slice, and pulls of the same consumer go on meanwhile.
An answer comes when the whole request is settled. Acks are cheap and stay with the first slice.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ternmq.broker.acks.settle import DeadRows
from ternmq.broker.groups.consumer_group import ConsumerSession
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.wire.messages.pull import Done

SLICE = 100  # Verdicts other than acks, of which each is some microseconds of work.
REST_MAX_S = 0.001  # What a slice takes, unless others have the processor.

log = get_logger()


class Applied(NamedTuple):
    """What became of the rows of a request."""

    settled: int
    late: int
    moving: list[DeadRows]
    late_rows: list[tuple[int, int, int]]
    """Which were late and do not count, as far as somebody has to know: lease, first, end."""


class _LargeAck:
    """One large ACK that waits for its turn."""

    __slots__ = ("applied", "consumer", "done", "finished")

    def __init__(
        self, consumer: ConsumerSession, done: Sequence[Done], finished: "asyncio.Future[Applied]"
    ) -> None:
        self.consumer = consumer
        self.done = done
        self.applied = Applied(0, 0, [], [])
        self.finished = finished


class LargeAcks:
    """Large ACK requests, settled in slices and in turn."""

    def __init__(self, apply: Callable[[ConsumerSession, Sequence[Done]], Applied]) -> None:
        self._apply = apply
        self._line: deque[_LargeAck] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, consumer: ConsumerSession, done: Sequence[Done]) -> "asyncio.Future[Applied]":
        """Settle these in time."""
        loop = asyncio.get_running_loop()
        large = _LargeAck(consumer, done, loop.create_future())
        self._line.append(large)
        if self._task is None:
            self._task = loop.create_task(self._work(), name="slices")
        return large.finished

    def hurry(self, consumer: ConsumerSession) -> None:
        """Settle what a consumer has in line now: it is about to leave."""
        for large in [each for each in self._line if each.consumer is consumer]:
            self._line.remove(large)
            self._step(large, len(large.done))

    async def finish(self) -> None:
        """Until nothing waits."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._line:
                began, large = loop.time(), self._line.popleft()
                if not self._step(large, cut(large.done)):
                    self._line.appendleft(large)
                await asyncio.sleep(min(loop.time() - began, REST_MAX_S))
        finally:
            self._task = None

    def _step(self, large: _LargeAck, count: int) -> bool:
        """Settle that many; was it the last?"""
        try:
            applied = self._apply(large.consumer, large.done[:count])
        except Exception as bug:  # What was not settled comes again when its lease is over.
            log.exception("settling failed by a bug")
            error = bug if isinstance(bug, TernError) else TernError("settling failed by a bug")
            _finish(large, error)
            return True
        so_far, large.done = large.applied, large.done[count:]
        large.applied = Applied(
            so_far.settled + applied.settled,
            so_far.late + applied.late,
            so_far.moving + applied.moving,
            so_far.late_rows + applied.late_rows,
        )
        if large.done:
            return False
        _finish(large, None)
        return True


def cut(done: Sequence[Done]) -> int:
    """How many of them are the next slice."""
    verdicts = 0
    for number, item in enumerate(done):
        verdicts += item.kind != "ack"
        if verdicts == SLICE:
            return number + 1
    return len(done)


def _finish(large: _LargeAck, error: TernError | None) -> None:
    if large.finished.done():
        return
    if error is None:
        large.finished.set_result(large.applied)
    else:
        large.finished.set_exception(error)
