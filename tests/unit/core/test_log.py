"""What is tried all the time is said once a minute; what comes often is counted."""

from ternmq.core.log import SAME_TEXT_S, LogBudget, LogThrottle


def test_the_same_is_said_once_and_then_once_a_minute() -> None:
    seldom = LogThrottle()
    said = [now for now in range(150) if seldom.due("not following", "refused", float(now))]
    assert said == [0, int(SAME_TEXT_S), 2 * int(SAME_TEXT_S)]


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


def test_a_budget_writes_the_first_lines_and_counts_the_others() -> None:
    budget = LogBudget(2)
    assert [budget.allows(count) for count in (1, 5, 3, 4)] == [True, True, False, False]
    assert (budget.left_out(), budget.left_out()) == (7, 0)
    assert not budget.allows()
    budget.renew()
    assert budget.allows()
