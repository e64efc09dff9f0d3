"""What is tried all the time is said once, and once a minute."""

from ternmq.core.log_throttle import AGAIN_S, LogThrottle


def test_the_same_is_said_once_and_then_once_a_minute() -> None:
    seldom = LogThrottle()
    said = [now for now in range(150) if seldom.due("not following", "refused", float(now))]
    assert said == [0, int(AGAIN_S), 2 * int(AGAIN_S)]


def test_another_reason_or_event_is_said_at_once() -> None:
    seldom = LogThrottle()
    assert seldom.due("not following", "refused", 0.0)
    assert seldom.due("not leading", "refused", 0.1)
    assert seldom.due("not following", "no answer", 0.3)
    assert not seldom.due("not following", "no answer", 0.6)
    assert not seldom.due("not leading", "refused", 0.6)


def test_what_comes_again_after_it_was_well_is_said_again() -> None:
    seldom = LogThrottle()
    assert seldom.due("not following", "refused", 0.0)
    seldom.over()
    assert seldom.due("not following", "refused", 0.3)
