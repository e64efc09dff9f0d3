"""Decisions on their way to the dispatch logs: written in rounds, told when they are on disk."""

import asyncio
from typing import NamedTuple

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.delay.dispatch_log import Decision
from ternmq.delay.engine import Engine
from ternmq.delay.rounds import Rounds
from ternmq.delay.store import Deciding


class _Waiting(NamedTuple):
    item: Deciding
    told: asyncio.Future[TernError | None]


class Decisions:
    """The one way to decide about rows."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._rounds: Rounds[_Waiting, list[Deciding]] = Rounds(
            "tern-delay-decide",
            stage=lambda waiting: [each.item for each in waiting],
            write=engine.store.decide,
            finish=self._finish,
        )

    def put(self, hour: int, decision: Decision) -> "asyncio.Future[TernError | None]":
        """Write it; the result is None once it is applied, or why it is not."""
        told: asyncio.Future[TernError | None] = self._loop.create_future()
        self._engine.hours[hour].deciding += 1
        self._rounds.put(_Waiting(Deciding(hour, decision), told))
        return told

    def _finish(
        self, waiting: list[_Waiting], _: list[Deciding] | None, error: TernError | None
    ) -> None:
        now_ms = self._clock.now_ms()
        for item, told in waiting:
            item.error = item.error or error
            self._engine.hours[item.hour].deciding -= 1
            self._engine.decided(item, now_ms)
            if not told.done():
                told.set_result(item.error)

    async def close(self) -> None:
        await self._rounds.close()
