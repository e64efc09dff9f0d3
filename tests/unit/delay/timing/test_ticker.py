"""A clock that jumps is noticed; one that only runs is not."""

from ternmq.delay.timing.ticker import ClockWatch
from ternmq.testing import TurnedClock


def test_jumps_are_noticed_and_counted() -> None:
    clock = TurnedClock()
    watch = ClockWatch(clock)
    clock.turn(5_000)
    assert watch.look() == 0

    clock.jump(3_600)
    assert watch.look() == 3_600_000
    clock.turn(1)
    clock.jump(-86_400)
    assert watch.look() == -86_400_000
    clock.turn(1)
    assert watch.look() == 0
    assert watch.jumps == 2
