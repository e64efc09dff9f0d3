"""Events reach `logging`; what is tried all the time is said once a minute, the rest is counted."""

import logging

import pytest

from ternmq.core.log import SAME_TEXT_S, LogBudget, LogThrottle, get_logger


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


def test_without_structlog_events_are_records_of_the_library_s_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="ternmq"):
        get_logger().info("connection lost", server="a:1", tries=2)
        get_logger().debug("too small to be told")

    [record] = caplog.records
    assert record.getMessage() == "connection lost server='a:1' tries=2"
    assert (record.levelno, record.ternmq) == (logging.INFO, {"server": "a:1", "tries": 2})  # type: ignore[attr-defined]
    assert record.filename == "test_log.py"  # The place that wrote it, not the logger's own.


def test_an_exception_is_recorded_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        get_logger().exception("handler failed", topic="t")

    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


def test_a_level_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AttributeError):
        get_logger().shout("hello")
