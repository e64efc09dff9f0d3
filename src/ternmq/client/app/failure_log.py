"""Log lines about handlers that fail: each of the first few in a second, then how many more.

A handler that fails for every message would else write thousands of lines a second, and writing
them costs more than telling the broker. Nothing is left out of the counts: what was not written one
by one is summed up in one line when the second is over, or when the handler loop ends.
"""

import asyncio

from ternmq.batch.readable import read_or
from ternmq.client.app.subscriber import Subscriber
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.log import LogBudget, get_logger

LINES_MAX = 10  # In one period.
PERIOD_S = 1.0

log = get_logger()


class FailureLog:
    """What is written about the failures of one handler."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self._loop = asyncio.get_running_loop()
        self._began = -PERIOD_S
        self._budget = LogBudget(LINES_MAX)
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, unit: Message | MessageBatch, reason: str) -> None:
        """A call of the handler ended badly."""
        now = self._loop.time()
        if now - self._began >= PERIOD_S:
            self.sum_up()
            self._began = now
            self._budget.renew()
        if self._budget.allows(len(unit) if isinstance(unit, MessageBatch) else 1):
            self._say(unit, reason)
            return
        self._last = reason
        if self._timer is None:
            self._timer = self._loop.call_at(self._began + PERIOD_S, self.sum_up)

    def sum_up(self) -> None:
        """Say how many were not written, if any."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsaid = self._budget.left_out()
        if unsaid:
            log.warning(
                "more handlers failed",
                group=self._subscriber.group,
                handler=self._subscriber.name,
                messages=unsaid,
                last_reason=self._last,
            )

    def _say(self, unit: Message | MessageBatch, reason: str) -> None:
        first = unit[0] if isinstance(unit, MessageBatch) else unit
        log.warning(
            "handler failed",
            topic=unit.topic,
            group=self._subscriber.group,
            id=read_or(lambda _: first.id, 0, "unreadable"),
            attempt=first.attempt,
            messages=len(unit) if isinstance(unit, MessageBatch) else 1,
            reason=reason,
        )
