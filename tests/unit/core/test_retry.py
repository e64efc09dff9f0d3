"""Waits of our own parts after failures in a row."""

from ternmq.core.retry import doubled


def test_each_failure_in_a_row_doubles_a_wait_up_to_its_bound() -> None:
    waits = [doubled(failures, first=0.5, most=5.0) for failures in range(6)]

    assert waits == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_any_number_of_failures_is_the_longest_wait() -> None:
    assert doubled(1_000_000, first=0.05, most=2.0) == 2.0
