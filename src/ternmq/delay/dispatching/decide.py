"""Decisions on their way to the journal: written in rounds, told when they count.

How a dispatch ended (`done`) is told when it is written: losing it costs one repeat, which the
broker recognises.
"""

import asyncio
from typing import NamedTuple

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.delay.formats.decision import Decision
from ternmq.delay.store.journal import Deciding
from ternmq.delay.store.rounds import Pass, Rounds, Written
from ternmq.delay.timing.engine import Engine
from ternmq.replication.commit_gate import CommitGate
from ternmq.wire.messages.replication import DECISIONS


class _Waiting(NamedTuple):
    item: Deciding
    told: "asyncio.Future[TernError | None]"


class Decisions:
    """The one way to decide about rows; it is the `delay.rounds.Way` of its rounds, too."""

    number = DECISIONS
    in_turn = False

    def __init__(self, engine: Engine, clock: Clock, safety: CommitGate | None = None) -> None:
        self._engine = engine
        self._journal = engine.store.decisions
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.rounds: Rounds[_Waiting, list[_Waiting]] = Rounds("tern-delay-decide", self, safety)

    def put(self, hour: int, decision: Decision) -> "asyncio.Future[TernError | None]":
        """Write it; the result is None once it is applied, or why it is not."""
        told: asyncio.Future[TernError | None] = self._loop.create_future()
        self._engine.hours[hour].deciding += 1
        self.rounds.put(_Waiting(Deciding(hour, decision), told))
        return told

    async def close(self) -> None:
        await self.rounds.close()

    # -- as a way for rounds

    def stage(self, items: list[_Waiting]) -> list[_Waiting]:
        return items  # Packing takes time: it is done on the thread.

    def write(self, staged: list[_Waiting], passing: Pass) -> Written:
        journal = self._journal
        group = journal.stage(
            [each.item for each in staged],
            scheduled=self._engine.store.derivation.scheduled_to,
            sync=False,
        )
        passing(group.plan, group.sync)
        try:
            journal.write(group)
        except TernError:
            journal.abandon(group)
            raise
        journal.commit(group, safe=False)
        return Written(group.plan.end, group.sync)

    def sync(self) -> None:
        self._journal.sync()

    def durable(self) -> int:
        return self._journal.synced_offset

    def advance(self, mark: int) -> None:
        self._journal.advance(mark)

    def finish(
        self, items: list[_Waiting], staged: list[_Waiting] | None, error: TernError | None
    ) -> None:
        now_ms = self._clock.now_ms()
        for item, told in items:
            item.error = item.error or error
            self._engine.hours[item.hour].deciding -= 1
            self._engine.decided(item, now_ms)
            if not told.done():
                told.set_result(item.error)
