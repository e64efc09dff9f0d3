"""Hours are loaded in time, and one that cannot be read holds up no other (Q7, D12)."""

import asyncio
from typing import Any

import pytest

from ternmq.core.errors import DiskFailed, TernError
from ternmq.core.units import HOUR_MS
from ternmq.delay.formats.decision import Decision
from ternmq.delay.timing import scheduler as scheduler_module
from ternmq.delay.timing.scheduler import Scheduler
from tests.unit.delay.builders import START_MS, Bench
from tests.waiting import until


def a_scheduler(bench: Bench) -> Scheduler:
    def decide(hour: int, decision: Decision) -> "asyncio.Future[TernError | None]":
        raise AssertionError("no hour is over here")

    return Scheduler(bench.engine, decide=decide, clock=bench.clock, checkpoint_interval_s=1e9)


async def test_an_hour_that_cannot_be_read_holds_up_no_other_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_module, "UNREADABLE_AGAIN_S", 0.05)
    bench = Bench()
    bench.send([START_MS + HOUR_MS, START_MS + 2 * HOUR_MS])
    bench.clock.turn(3 * 3600)
    bench.kill()
    bad, good = sorted(bench.engine.hours.values(), key=lambda hour: hour.start)
    load, broken = bench.store.derivation.schedule_log.load, True

    def maybe(hour: int, start: int) -> Any:
        if hour == bad.start and broken:
            raise DiskFailed("input/output error")
        return load(hour, start)

    monkeypatch.setattr(bench.store.derivation.schedule_log, "load", maybe)
    scheduler = a_scheduler(bench)
    running = asyncio.create_task(scheduler.run())
    try:
        await until(lambda: good.loaded)
        with pytest.raises(DiskFailed, match="input/output"):
            await scheduler.load(bad)
        scheduler.let_go(bad)
        assert not bad.loaded
        broken = False
        await until(lambda: bad.loaded)
    finally:
        running.cancel()
        await asyncio.wait([running])
        scheduler.close()
    bench.tick()
    assert bench.send_out() == [START_MS + HOUR_MS, START_MS + 2 * HOUR_MS]


async def test_an_hour_stays_until_everybody_has_let_go_of_it() -> None:
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    hour = bench.engine.hours[START_MS]
    scheduler = a_scheduler(bench)

    assert await scheduler.load(hour)
    assert await scheduler.load(hour)
    scheduler.let_go(hour)
    assert bench.engine.near.requested == {hour.start}
    scheduler.let_go(hour)
    assert not bench.engine.near.requested
    scheduler.close()
