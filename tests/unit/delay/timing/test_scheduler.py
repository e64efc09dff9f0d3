"""Hours are loaded in time, and one that cannot be read holds up no other (Q7, D12)."""

import asyncio
from typing import Any

import pytest

from ternmq.core.errors import DiskFailed
from ternmq.core.units import HOUR_MS
from ternmq.delay.timing import scheduler as loader_module
from ternmq.delay.timing.scheduler import Scheduler
from tests.unit.delay.builders import START_MS, Bench
from tests.waiting import until


async def test_an_hour_that_cannot_be_read_holds_up_no_other_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_module, "UNREADABLE_AGAIN_S", 0.05)
    bench = Bench()
    bench.send([START_MS + HOUR_MS, START_MS + 2 * HOUR_MS])
    bench.clock.turn(3 * 3600)
    bench.kill()
    bad, good = sorted(bench.engine.hours.values(), key=lambda hour: hour.start)
    load, broken = bench.store.schedule_log.load, True

    def maybe(hour: int, start: int) -> Any:
        if hour == bad.start and broken:
            raise DiskFailed("input/output error")
        return load(hour, start)

    monkeypatch.setattr(bench.store.schedule_log, "load", maybe)
    loader = Scheduler(bench.engine, clock=bench.clock, checkpoint_interval_s=1e9)
    running = asyncio.create_task(loader.run())
    try:
        await until(lambda: good.loaded)
        with pytest.raises(DiskFailed, match="input/output"):
            await loader.load(bad)
        loader.let_go(bad)
        assert not bad.loaded
        broken = False
        await until(lambda: bad.loaded)
    finally:
        running.cancel()
        await asyncio.wait([running])
        loader.close()
    bench.tick()
    assert bench.send_out() == [START_MS + HOUR_MS, START_MS + 2 * HOUR_MS]


async def test_an_hour_stays_until_everybody_has_let_go_of_it() -> None:
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    hour = bench.engine.hours[START_MS]
    loader = Scheduler(bench.engine, clock=bench.clock, checkpoint_interval_s=1e9)

    assert await loader.load(hour)
    assert await loader.load(hour)
    loader.let_go(hour)
    assert bench.engine.requested == {hour.start}
    loader.let_go(hour)
    assert not bench.engine.requested
    loader.close()
