"""Files of a delay server that are damaged, cut or gone: told, never sent twice or forgotten (Q8).

What cannot be read stays pending for people to look at; everything else goes on.
"""

from pathlib import Path

import numpy as np
import pytest

from ternmq.core.errors import Corrupt
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.formats.paths import hour_name
from ternmq.delay.hours.hour import NEVER
from tests.unit.delay.builders import START_MS, Bench
from tests.unit.delay.operations.test_changes import Server

SCHEDULE = Path("/delay/schedule") / hour_name(START_MS)
DISPATCH = Path("/delay/dispatch") / hour_name(START_MS)
DUES = [START_MS + 100, START_MS + 101, START_MS + 5_000]


def fired(*, checkpoint: bool = True) -> Bench:
    """Two of three messages are out."""
    bench = Bench()
    for due in DUES:
        bench.send([due])
    bench.prepare()
    bench.tick(0.5)
    assert bench.send_out() == DUES[:2]
    if checkpoint:
        bench.checkpoint()
    return bench


def stands_still(bench: Bench, because: str) -> None:
    """Nothing of the hour goes out, and whoever loads it is told why; so after another start."""
    for _ in range(2):
        bench.kill()
        bench.clock.turn(60)
        with pytest.raises(Corrupt, match=because):
            bench.prepare()
        bench.tick()
        assert bench.send_out() == []
        assert bench.ledger()[0] == 3


def test_a_dispatch_log_that_is_gone_sends_nothing_twice() -> None:
    bench = fired()
    bench.disk.remove(DISPATCH)

    stands_still(bench, "is damaged at 0: what was sent")


def test_a_dispatch_log_that_was_cut_sends_nothing_twice() -> None:
    """The end that is missing was on disk: the checkpoint says so."""
    bench = fired()
    bench.disk.cut(DISPATCH, 40)

    stands_still(bench, "is damaged at 0")


def test_a_damaged_decision_stops_its_hour_also_when_another_intent_is_open() -> None:
    bench = fired()
    bench.tick(5)
    work = bench.next()
    assert work is not None
    bench.intend(work, bench.collect(work).rows)
    bench.disk.flip(DISPATCH, 50)

    stands_still(bench, "is damaged at 0")


def test_the_last_decision_is_missed_when_it_is_damaged() -> None:
    """Nothing behind it says that it was on disk; the checkpoint does."""
    bench = fired(checkpoint=False)
    hour = bench.engine.hours[START_MS]
    assert hour.book is not None
    rows = hour.book.hold(np.array([2], np.uint32), NEVER)
    bench.decide(START_MS, Decision(kind=DecisionKind.CANCELLED, at_ms=1, topic_id=1, rows=rows))
    bench.checkpoint()
    bench.disk.flip(DISPATCH, len(bench.disk.read(DISPATCH)) - 4)

    stands_still(bench, "is damaged at")


def test_what_comes_after_a_schedule_log_was_cut_goes_out() -> None:
    bench = fired()
    bench.disk.cut(SCHEDULE, len(bench.disk.read(SCHEDULE)) - 13)
    bench.kill()
    bench.send([START_MS + 6_000])
    bench.prepare()
    bench.checkpoint()
    bench.kill()
    bench.prepare()
    bench.tick(10)

    assert bench.send_out() == [START_MS + 6_000]
    assert bench.ledger() == (4, 1, 3, 0), "what was cut away stays pending"


def test_the_messages_of_a_schedule_log_that_is_gone_stay_pending() -> None:
    bench = fired()
    bench.disk.remove(SCHEDULE)
    for _ in range(2):
        bench.kill()
        assert bench.ledger() == (3, 1, 2, 0), "what is out is not counted again"
        bench.checkpoint()
    bench.send([START_MS + 6_000])
    bench.prepare()
    bench.tick(10)

    assert bench.send_out() == [START_MS + 6_000]
    assert bench.ledger() == (4, 1, 3, 0)


@pytest.mark.parametrize("loaded", [True, False])
async def test_a_message_that_may_be_in_damaged_bytes_is_not_called_unknown(loaded: bool) -> None:
    bench = fired()
    index = bench.engine.hours[START_MS].index
    assert index is not None
    ids = []
    for record in range(3):
        offset, size, _ = index.place(record)
        ids.append(bench.store.record(START_MS, offset, size).id_bytes(0))
    offset, size, _ = index.place(2)
    bench.disk.flip(SCHEDULE, offset + size - 20)
    bench.kill()
    if loaded:
        bench.prepare()
    server = Server(bench)
    try:
        with pytest.raises(Corrupt, match="bytes of the schedule logs cannot be"):
            await server.find(ids[2])
        assert await server.find(ids[1]) == [1]
    finally:
        await server.close()


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_a_bad_checkpoint_sends_nothing_again(how: str) -> None:
    """The message log still has what went out of hours that are removed: the copy knows it."""
    bench = fired()
    bench.tick(5)
    assert bench.send_out() == DUES[2:]
    bench.clock.turn(7_200)
    for _ in range(3):
        bench.checkpoint()
    assert not bench.disk.exists(SCHEDULE)
    path = Path("/delay/checkpoint")
    if how == "flipped":
        bench.disk.flip(path, 20)
    else:
        bench.disk.remove(path)
    bench.kill()
    bench.prepare()
    bench.tick(10)

    assert bench.send_out() == []
    assert bench.ledger() == (3, 0, 3, 0)
