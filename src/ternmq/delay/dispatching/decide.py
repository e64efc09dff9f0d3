"""Decisions on their way to the journal: written in rounds, told when they count.

How a dispatch ended (`done`) is told when it is written: losing it costs one repeat, which the
broker recognises.
"""

import asyncio
from typing import NamedTuple

from ternmq.core.clock import Clock
from ternmq.core.errors import NotMaster, TernError
from ternmq.delay.formats.decision import Decision
from ternmq.delay.store.journal import Deciding
from ternmq.delay.timing.engine import Engine
from ternmq.replication.commit_gate import CommitGate
from ternmq.replication.group_commit import GroupCommit, ListTarget, Offer, Offered, Written
from ternmq.wire.messages.replication import DECISIONS


class _Waiting(NamedTuple):
    item: Deciding
    done: "asyncio.Future[TernError | None]"


class Decisions:
    """The one way to decide about rows."""

    def __init__(self, engine: Engine, clock: Clock, gate: CommitGate) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._target = _JournalTarget(engine, clock)
        self.rounds = GroupCommit("the delay server", "tern-delay-decide", [self._target], gate)

    def put(self, hour: int, decision: Decision) -> "asyncio.Future[TernError | None]":
        """Write it; the result is None once it is applied, or why it is not."""
        done: asyncio.Future[TernError | None] = self._loop.create_future()
        self._engine.hours[hour].deciding += 1
        self.rounds.put(self._target, _Waiting(Deciding(hour, decision), done))
        return done

    async def close(self) -> None:
        await self.rounds.close()


class _JournalTarget(ListTarget[_Waiting]):
    """The journal as a `CommitTarget`."""

    number = DECISIONS
    in_turn = False
    offers_alone = False

    def __init__(self, engine: Engine, clock: Clock) -> None:
        super().__init__()
        self._engine = engine
        self._journal = engine.store.decisions
        self._clock = clock

    def heeds(self, refusal: TernError) -> bool:
        return isinstance(refusal, NotMaster)  # What is not written here is decided by another.

    def stage(self, load: list[_Waiting]) -> list[_Waiting]:
        return load  # Packing takes time: it is done on the thread.

    def offered(self, staged: list[_Waiting]) -> None:
        return None

    def write(self, staged: list[_Waiting], offer: Offer) -> Written:
        journal = self._journal
        group = journal.stage(
            [each.item for each in staged],
            scheduled=self._engine.store.derivation.scheduled_to,
            sync=False,
        )
        offer(Offered(group.plan, group.sync))
        try:
            journal.write(group)
        except TernError:
            journal.abandon(group)
            raise
        journal.commit(group, safe=False)
        return Written(group.plan.end, waits=group.sync)

    def sync(self) -> None:
        self._journal.sync()

    def durable(self) -> int:
        return self._journal.synced_offset

    def written(self, load: list[_Waiting], staged: list[_Waiting]) -> None:
        """Committed on the thread, as it was staged there."""

    def abandon(self, staged: list[_Waiting]) -> None:
        """Abandoned on the thread."""

    def advance(self, mark: int) -> None:
        self._journal.advance(mark)

    def count(self, staged: list[_Waiting]) -> None:
        """`finish` applies them."""

    def finish(
        self, load: list[_Waiting], staged: list[_Waiting] | None, error: TernError | None
    ) -> None:
        now_ms = self._clock.now_ms()
        for item, done in load:
            item.error = item.error or error
            self._engine.hours[item.hour].deciding -= 1
            self._engine.decided(item, now_ms)
            if not done.done():
                done.set_result(item.error)
