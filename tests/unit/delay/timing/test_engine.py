"""What goes out, in which order, and what waits: on a simulated disk (Q7, Q8, R7, D12)."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from ternmq.batch.view import BatchView
from ternmq.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.hours.hour import NEVER
from ternmq.delay.timing.dispatch_work import TURN_MS, DispatchWork
from ternmq.delay.timing.engine import LATE_RATE
from ternmq.delay.timing.paused_topics import PAUSE_MAX_S
from ternmq.testing.disk import SimulatedDisk
from tests.unit.delay.builders import START_MS, Bench


def due_order(dues: list[int]) -> list[int]:
    return [due // TURN_MS for due in dues]


def taken(bench: Bench) -> DispatchWork:
    """The next work, with its intent synced, and no answer yet."""
    work = bench.next()
    assert work is not None
    return work


def released(bench: Bench, work: DispatchWork, intent: Decision, *, topic_rests: bool) -> None:
    if topic_rests:
        bench.engine.paused.refused(work.topic_id, bench.clock.monotonic())
    bench.decide(work.hour, Decision(kind=DecisionKind.RELEASED, at_ms=0, value=intent.offset))


@pytest.mark.parametrize("size_max", [2**21, 20_000], ids=["large", "small"])
def test_what_is_overdue_goes_out_oldest_first_whatever_order_it_came_in(size_max: int) -> None:
    """An outage of three hours, sends in any order, batches of any size."""
    bench, random = Bench(), Random(4)
    dues = [START_MS + random.randrange(3 * HOUR_MS) for _ in range(600)]
    for first in range(0, len(dues), 50):
        bench.send(dues[first : first + 50], size=100)
    bench.clock.turn(3 * 3600 + 10)
    bench.kill()
    bench.prepare()

    bench.tick()
    out = bench.send_out(size_max)

    assert sorted(out) == sorted(dues)
    seconds = [due // SECOND_MS for due in out]
    assert all(later >= earlier - 1 for earlier, later in pairwise(seconds))
    assert bench.ledger() == (600, 0, 600, 0)


def test_rows_of_one_tick_go_out_by_due_time_to_the_tick() -> None:
    bench = Bench()
    bench.send([START_MS + 950, START_MS + 450, START_MS + 455, START_MS + 50])
    bench.prepare()
    bench.clock.turn(0.9)

    bench.tick()
    out = bench.send_out()

    assert out == [START_MS + 50, START_MS + 450, START_MS + 455, START_MS + 950]


def test_an_overdue_row_does_not_jump_the_queue_of_what_is_due_now() -> None:
    """What did not fit into a batch stays late, so fresh rows do not wait behind it."""
    bench = Bench()
    bench.send([START_MS + at for at in range(400)], size=1_000)
    bench.prepare()
    bench.clock.turn(60)
    now_ms = bench.clock.now_ms()
    bench.send([now_ms + 50])
    bench.prepare()
    bench.tick()

    order: list[int] = []
    while (work := bench.next()) is not None:
        found = bench.collect(work, 10_000)
        assert found.batch is not None
        order.append(int(BatchView(found.batch).body(0).rstrip(b"\0")))
        bench.intend(work, found.rows)

    assert order.index(now_ms + 50) <= 1
    assert due_order(order[2:]) == sorted(due_order(order[2:]))


def test_a_backlog_is_let_out_at_a_bounded_rate() -> None:
    bench = Bench()
    count = 3 * LATE_RATE // 10
    for _ in range(3):
        bench.send([START_MS] * (count // 3))
    bench.prepare()
    bench.clock.turn(3600)
    bench.kill()
    bench.prepare()

    ready = [bench.tick(0.1) for _ in range(5)]

    assert sum(ready) == count
    assert max(ready) <= LATE_RATE // 10 + 10


def test_rows_that_a_broker_refused_are_found_again_after_a_restart() -> None:
    """A checkpoint in the time of an open intent must not forget them: they may be released."""
    bench = Bench()
    bench.send([START_MS + 100, START_MS + 101])
    bench.prepare()
    moved = Decision(
        kind=DecisionKind.MOVED,
        at_ms=0,
        topic_id=1,
        rows=np.array([1], np.uint32),
        value=START_MS + 30 * DAY_MS,
    )
    bench.decide(START_MS, moved)
    bench.tick(0.2)
    work = taken(bench)
    bench.intend(work, work.rows)
    bench.kill()
    bench.prepare()
    ((hour, intent),) = bench.engine.near.unresolved
    bench.checkpoint()
    bench.decide(hour, Decision(kind=DecisionKind.RELEASED, at_ms=0, value=intent.offset))
    bench.checkpoint()
    bench.kill()

    bench.prepare()
    bench.tick()

    assert bench.send_out() == [START_MS + 100]
    assert bench.ledger() == (2, 1, 1, 0)


def test_an_hour_with_something_waiting_is_never_left_unread() -> None:
    """Also if a checkpoint of an earlier version says that nothing there is ever due."""
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    next(iter(bench.engine.hours.values())).next_due = NEVER
    bench.checkpoint()
    bench.kill()

    bench.prepare()
    bench.tick(0.2)

    assert bench.send_out() == [START_MS + 100]


def test_a_refused_topic_rests_and_holds_up_nobody() -> None:
    bench = Bench()
    bench.send([START_MS + 100] * 3, "t")
    bench.prepare()
    bench.tick(0.2)
    work = taken(bench)
    intent = bench.intend(work, work.rows)
    released(bench, work, intent, topic_rests=True)
    bench.send([START_MS + 300], "t")
    bench.send([START_MS + 300], "u")
    bench.prepare()

    bench.tick(0.2)
    assert bench.send_out() == [START_MS + 300], "only the other topic"
    bench.tick(1.0)
    assert bench.send_out() == [START_MS + 100] * 3 + [START_MS + 300]
    assert bench.ledger() == (5, 0, 5, 0)


def test_each_refusal_makes_the_rest_longer_and_a_success_ends_it() -> None:
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.2)
    waits: list[float] = []
    for _ in range(8):
        work = taken(bench)
        released(bench, work, bench.intend(work, work.rows), topic_rests=True)
        since = bench.clock.monotonic()
        while not bench.tick(0.5):
            pass
        waits.append(bench.clock.monotonic() - since)

    assert waits == sorted(waits)
    assert waits[0] <= 1.5
    assert PAUSE_MAX_S <= waits[-1] <= PAUSE_MAX_S + 1
    bench.engine.paused.taken(1)
    assert bench.send_out() == [START_MS + 100]


def test_a_row_of_a_refused_topic_can_be_cancelled_and_never_goes_out() -> None:
    bench = Bench()
    bench.send([START_MS + 100, START_MS + 101])
    bench.prepare()
    bench.tick(0.2)
    work = taken(bench)
    released(bench, work, bench.intend(work, work.rows), topic_rests=True)

    hour = bench.engine.hours[work.hour]
    assert hour.book is not None
    row = hour.book.hold(np.array([0], np.uint32), NEVER)
    bench.decide(work.hour, Decision(kind=DecisionKind.CANCELLED, at_ms=0, topic_id=1, rows=row))
    bench.tick(2)

    assert bench.send_out() == [START_MS + 101]
    assert bench.ledger() == (2, 0, 1, 1)
    assert hour.waiting == 0


def flip_a_bit(disk: SimulatedDisk, bench: Bench, hour: int, offset: int) -> None:
    path = bench.store.paths.schedule / f"{hour:017d}.log"
    file = disk.open(path, create=False)
    (byte,) = file.pread(1, offset)
    file.pwritev([bytes([byte ^ 1])], offset)
    file.sync()


def test_a_row_that_cannot_be_read_costs_only_itself_and_is_not_forgotten() -> None:
    """The ancestor skipped such rows and lost them (qmq.md 9.1, 5)."""
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    ((start, hour),) = bench.engine.hours.items()
    first_size = hour.length
    bench.send([START_MS + 101])
    bench.prepare()
    flip_a_bit(bench.disk, bench, start, first_size - 20)

    bench.tick(0.2)
    assert bench.send_out() == [START_MS + 101]
    assert bench.ledger() == (2, 1, 1, 0)
    bench.engine.near.unload(NEVER - 1)
    bench.checkpoint()
    assert bench.engine.hours, "kept for somebody to look at"
    flip_a_bit(bench.disk, bench, start, first_size - 20)  # The disk has thought better of it.
    bench.kill()
    bench.prepare()
    bench.tick()

    assert bench.send_out() == [START_MS + 100]
    assert bench.ledger() == (2, 0, 2, 0)


@pytest.mark.parametrize("hour_ms", [MINUTE_MS, 5 * MINUTE_MS, HOUR_MS, DAY_MS])
def test_any_length_of_an_hour_will_do_and_may_be_changed(hour_ms: int) -> None:
    """1 minute to 1 day; what was scheduled under another length goes out all the same."""
    bench = Bench()
    dues = [START_MS + at * 7 * MINUTE_MS for at in range(20)]
    bench.send(dues[:10])
    bench.prepare()
    bench.hour_ms = hour_ms
    bench.kill()
    bench.send(dues[10:])

    out: list[int] = []
    for _ in range(20):
        bench.prepare()
        bench.tick()
        out += bench.send_out()
        assert all(due <= bench.clock.now_ms() for due in out)
        bench.clock.turn(7 * 60)

    assert out == dues
    bench.clock.turn(2 * 86_400)
    for _ in range(3):
        bench.checkpoint()
    assert not bench.store.schedule_files.found()
    assert not bench.store.dispatch_files.found()


def test_three_outages_in_a_row_leave_nothing_behind_in_any_hour() -> None:
    """The ancestor looked at the last two dispatch segments only (qmq.md 9.1, 5)."""
    bench = Bench()
    dues = [START_MS + at * HOUR_MS for at in range(1, 40)]
    bench.send(dues)
    bench.prepare()
    bench.clock.turn(2 * 3600)
    bench.prepare()
    bench.tick()
    work = taken(bench)
    bench.intend(work, work.rows)  # Its broker is away; so is everybody, for 40 hours.
    for _ in range(3):
        bench.clock.turn(13 * 3600)
        bench.kill()
        bench.prepare()
        bench.checkpoint()
    ((hour, intent),) = bench.engine.near.unresolved
    bench.decide(hour, Decision(kind=DecisionKind.DONE, at_ms=0, value=intent.offset))

    out: list[int] = []
    for _ in range(40):
        bench.tick(1)
        out += bench.send_out()

    assert out == [due for due in dues if due != work.hour]
    assert bench.ledger() == (39, 0, 39, 0)
