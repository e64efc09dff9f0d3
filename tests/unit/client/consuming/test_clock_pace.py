"""How often the clock of leases is asked."""

from ternmq.client.consuming.clock_pace import LOOK_S, ROWS_MAX, ClockPace


def test_who_is_quick_asks_once_for_many_and_who_is_slow_for_each() -> None:
    pace, now = ClockPace(ordered=False), 100.0
    quick = []
    for _ in range(20):
        now += LOOK_S / 2
        quick.append(pace.rows(now))
    assert quick[0] == 1
    assert quick[-1] == ROWS_MAX

    slow = [pace.rows(now := now + 1.0) for _ in range(3)]
    assert slow[-1] == 1


def test_in_order_it_is_asked_for_every_message() -> None:
    pace = ClockPace(ordered=True)

    assert {pace.rows(at * LOOK_S / 100) for at in range(100)} == {1}
