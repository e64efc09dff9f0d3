"""Log lines about handlers that fail: each of the first few in a second, then how many more.

A handler that fails for every message would else write thousands of lines a second, and writing
them costs more than telling the broker. Nothing is left out of the counts: what was not written one
by one is summed up in one line when the second is over, or when the handler loop ends. The first
failure of a kind (exception and place) has its traceback, and one that was a message's last attempt
says that it is a dead letter now.
"""

import asyncio

from ternmq.batch.readability import read_or
from ternmq.client.app.handler_pool import TimedOut
from ternmq.client.app.handler_run import HandlerEnd
from ternmq.client.app.last_attempts import LastAttempts
from ternmq.client.app.subscriber import Subscriber
from ternmq.client.model.last_error import report
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.log import LogBudget, get_logger

LINES_MAX = 10  # In one period.
PERIOD_S = 1.0
KINDS_MAX = 100

log = get_logger()


class FailureLog:
    """What is written about the failures of one handler."""

    def __init__(self, subscriber: Subscriber, limits: LastAttempts) -> None:
        self._subscriber = subscriber
        self._limits = limits
        self._shown: set[tuple[object, ...]] = set()
        """Kinds of failures whose traceback was written."""
        self._loop = asyncio.get_running_loop()
        self._began = -PERIOD_S
        self._budget = LogBudget(LINES_MAX)
        self._last = ""
        self._timer: asyncio.TimerHandle | None = None

    def failed(self, unit: Message | MessageBatch, end: HandlerEnd) -> None:
        """A call of the handler ended badly."""
        now = self._loop.time()
        if now - self._began >= PERIOD_S:
            self.sum_up()
            self._began = now
            self._budget.renew()
        if self._budget.allows(len(unit) if isinstance(unit, MessageBatch) else 1):
            self._say(unit, end)
            return
        self._last = end.reason
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

    def _say(self, unit: Message | MessageBatch, end: HandlerEnd) -> None:
        first = unit[0] if isinstance(unit, MessageBatch) else unit
        more: dict[str, str] = {}
        if end.verdict == "reject" or self._limits.was_last(unit.topic, first.attempt):
            more["outcome"] = "dead letter now"
        if (trace := self._traceback(end)) is not None:
            more["stack"] = trace  # The name under which structlog writes lines as lines.
        log.warning(
            "handler failed",
            topic=unit.topic,
            group=self._subscriber.group,
            id=read_or(lambda _: first.id, 0, "unreadable"),
            attempt=first.attempt,
            messages=len(unit) if isinstance(unit, MessageBatch) else 1,
            reason=end.reason,
            **more,
        )

    def _traceback(self, end: HandlerEnd) -> str | None:
        """None if one of this kind was written, or there is none."""
        error = end.error
        if error is None or isinstance(error, TimedOut):
            return None
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = None if place is None else (place.tb_frame.f_code.co_filename, place.tb_lineno)
        kind = (type(error), where)
        if kind in self._shown or len(self._shown) >= KINDS_MAX:
            return None
        self._shown.add(kind)
        found = report(error, "")
        return found[2] if found is not None else None
