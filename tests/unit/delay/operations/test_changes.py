"""Cancel, reschedule, fire now: what was answered once stays true (Q8)."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from ternmq.batch.view import BatchView
from ternmq.delay.dispatching.decide import Decisions
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.operations.changes import Changes
from ternmq.delay.operations.find import DelayFinder
from ternmq.delay.timing.scheduler import Scheduler
from ternmq.wire.messages.delays import DelayAction, DelayChange
from tests.lone_gate import LoneGate
from tests.unit.delay.builders import START_MS, Bench


class Server:
    """The asking side of a delay server around a bench; the test does the rest by hand."""

    def __init__(self, bench: Bench) -> None:
        self.decisions = Decisions(bench.engine, bench.clock, LoneGate())
        self.scheduler = Scheduler(
            bench.engine,
            decide=self.decisions.put,
            clock=bench.clock,
            checkpoint_interval_s=1e9,
        )
        self.finder = DelayFinder(bench.engine, self.scheduler)
        self.changes = Changes(
            bench.engine,
            self.scheduler,
            self.decisions,
            self.finder,
            clock=bench.clock,
            max_days=731,
        )

    async def ask(self, action: DelayAction, message_id: bytes) -> str:
        change = DelayChange(action=action, id=message_id, due_at_ms=START_MS)
        return (await self.changes.change(change)).result

    async def find(self, message_id: bytes) -> list[int]:
        return [found.row.row async for found in self.finder.by_id(message_id, "", START_MS)]

    async def close(self) -> None:
        await self.decisions.close()
        self.finder.close()
        self.scheduler.close()


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.send([START_MS + 100, START_MS + 101])
    made.prepare()
    return made


@pytest.fixture
async def server(bench: Bench) -> AsyncIterator[Server]:
    made = Server(bench)
    yield made
    await made.close()


def ids(bench: Bench) -> list[bytes]:
    (place,) = bench.engine.places(START_MS, np.array([0, 1], np.uint32))
    view: BatchView = bench.store.record(place.hour, place.offset, place.size)
    return [view.id_bytes(row) for row in range(2)]


async def test_who_was_told_too_late_is_not_told_otherwise_when_the_broker_refuses(
    bench: Bench, server: Server
) -> None:
    """The row waits for a broker that takes it; its neighbour, of which nobody was told anything,
    can be cancelled."""
    one, two = ids(bench)
    bench.tick(0.2)
    work = bench.next()
    assert work is not None
    intent = bench.intend(work, work.rows)
    assert await server.ask("cancel", one) == "already_dispatched"
    bench.engine.paused.refused(work.topic_id, bench.clock.monotonic())
    bench.decide(work.hour, Decision(kind=DecisionKind.RELEASED, at_ms=0, value=intent.offset))

    assert await server.ask("cancel", one) == "already_dispatched"
    assert await server.ask("fire", one) == "already_dispatched"
    assert await server.ask("cancel", two) == "cancelled"
    assert await server.ask("cancel", two) == "cancelled"
    assert await server.ask("fire", two) == "cancelled"
    bench.tick(2)
    assert bench.send_out() == [START_MS + 100]
    assert bench.ledger() == (2, 0, 1, 1)
    assert await server.ask("cancel", one) == "already_dispatched"


async def test_a_message_whose_hour_is_cleaned_up_while_it_is_asked_for_is_unknown(
    bench: Bench, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes, and the server goes on."""
    one, _ = ids(bench)
    bench.tick(0.2)
    bench.send_out()
    bench.clock.turn(2 * 3600)
    bench.engine.near.unload(0)
    hour = bench.engine.hours[START_MS]
    search = server.finder._in_hour

    async def slow(*arguments: Any) -> Any:
        found = await search(*arguments)
        for _ in range(3):
            bench.checkpoint()
        return found

    monkeypatch.setattr(server.finder, "_in_hour", slow)
    assert not hour.loaded

    assert await server.ask("cancel", one) == "unknown"
    assert not bench.engine.hours
    assert not bench.engine.near.requested
