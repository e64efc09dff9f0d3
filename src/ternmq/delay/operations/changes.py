"""DELAY_CHANGE: cancel, reschedule, fire now. An answer is true and durable.

The synced intent decides. While one is being written about the row, the answer waits for it: after
it the row is ALREADY DISPATCHED, else it is still ours. Who was told so is not told otherwise if
the broker then refuses the row: it waits for a broker that takes it. A change is a record in the
dispatch log, answered when it is synced. Asking again gives the same answer. A message whose hour
is over and cleaned up is UNKNOWN, as is one that never was.
"""

import asyncio

import numpy as np

from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.units import DAY_MS
from ternmq.delay.dispatching.decide import Decisions
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.hours.decision_book import BUSY, CANCELLED, INTENDED, PENDING, DecisionBook
from ternmq.delay.hours.hour import NEVER, Hour
from ternmq.delay.operations.find import DelayFinder, FoundRow
from ternmq.delay.operations.listing import ListedRow
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import Scheduler
from ternmq.security.access.rights import Rights
from ternmq.wire.messages.delays import DelayChange, DelayChanged, DelayResult

LOOK_AGAIN_S = 0.005
_DONE: dict[str, DelayResult] = {
    "cancel": "cancelled",
    "reschedule": "rescheduled",
    "fire": "fired",
}


class Changes:
    """The DELAY_CHANGE command."""

    def __init__(
        self,
        engine: Engine,
        scheduler: Scheduler,
        decisions: Decisions,
        finder: DelayFinder,
        *,
        clock: Clock,
        max_days: int,
    ) -> None:
        self._engine = engine
        self._scheduler = scheduler
        self._decisions = decisions
        self._finder = finder
        self._clock = clock
        self._max_days = max_days

    async def change(self, request: DelayChange, rights: Rights | None = None) -> DelayChanged:
        """Find the message and decide about it; of another's with the right to operate only."""
        new_due_ms = self._new_due(request)
        settled: DelayChanged | None = None
        async for found in self._finder.by_id(request.id, request.topic, request.due_at_ms):
            if rights is not None and not rights.is_app(found.row.app):
                rights.check_operate(self._engine.store.names.get(found.row.topic_id, ""))
            answer = await self._decide(found, request, new_due_ms)
            if answer is None:
                continue
            if answer.result != "already_dispatched" and answer.result != "cancelled":
                return answer
            if answer.result == "cancelled" and request.action == "cancel":
                return answer
            settled = settled or answer
        return settled or DelayChanged(result="unknown")

    def _new_due(self, request: DelayChange) -> int:
        now_ms = self._clock.now_ms()
        if request.action == "cancel":
            return 0
        if request.action == "fire":
            return now_ms
        due_ms = now_ms + request.after_ms if request.after_ms >= 0 else request.at_ms
        if due_ms <= 0:
            raise BadRequest("when shall it be due? give a time or a delay")
        if due_ms > now_ms + self._max_days * DAY_MS:
            raise BadRequest(
                f"due more than {self._max_days} days ahead; the limit is delay_max_days"
            )
        return due_ms

    async def _decide(
        self, found: FoundRow, request: DelayChange, new_due_ms: int
    ) -> DelayChanged | None:
        """None: its hour was cleaned up in this moment."""
        hour, row = found
        try:
            if not await self._scheduler.load(hour):
                return None
            book = hour.book
            assert book is not None
            while (state := book.state(row.row)) == BUSY:
                if self._engine.store.failed is not None:
                    raise TernError("the disk failed; restart the delay server to recover")
                await asyncio.sleep(LOOK_AGAIN_S)
            due_ms = book.due_of(row.row, row.due_ms)
            if state == PENDING and row.row not in book.promised:
                return await self._write(hour, book, row, request, new_due_ms or due_ms)
            result: DelayResult = "cancelled" if state == CANCELLED else "already_dispatched"
            if state in (PENDING, INTENDED):
                book.promised.add(row.row)
            return DelayChanged(result=result, due_at_ms=due_ms)
        finally:
            self._scheduler.let_go(hour)

    async def _write(
        self, hour: Hour, book: DecisionBook, row: ListedRow, request: DelayChange, due_ms: int
    ) -> DelayChanged:
        rows = book.hold(np.array([row.row], np.uint32), NEVER)
        cancel = request.action == "cancel"
        decision = Decision(
            kind=DecisionKind.CANCELLED if cancel else DecisionKind.MOVED,
            at_ms=self._clock.now_ms(),
            topic_id=row.topic_id,
            rows=rows,
            value=0 if cancel else due_ms,
        )
        error = await self._decisions.put(hour.start, decision)
        if error is not None:
            if self._engine.store.failed is None:
                self._engine.undecided(hour, rows, book.due_of(row.row, row.due_ms))
            raise error.copy()
        return DelayChanged(result=_DONE[request.action], due_at_ms=due_ms)
