"""When a broker group is empty: twice nothing, nobody silent, nothing stored in between."""

from typing import Any

import pytest

from ternmq.client.admin.drain import DrainProgress


def progress(**changed: Any) -> DrainProgress:
    values: dict[str, Any] = {"draining": True, "log_end": 100} | changed
    return DrainProgress(broker_group="west", **values)


def test_nothing_twice_in_a_row_is_empty() -> None:
    assert progress().done_after(progress())
    assert not progress().done_after(None)


@pytest.mark.parametrize(
    "what", ["ready", "in_flight", "waiting_retry", "half", "delayed", "untaken"]
)
def test_whatever_is_left_is_waited_for(what: str) -> None:
    some = progress(**{what: 1})

    assert some.left == 1
    assert not some.done_after(progress())
    assert not progress().done_after(some)


def test_something_that_came_in_between_is_looked_at_again() -> None:
    assert not progress(log_end=101).done_after(progress(log_end=100))


def test_a_silent_server_or_an_undone_order_is_never_empty() -> None:
    silent = DrainProgress(broker_group="west", draining=True, missing={"later": "away"})

    assert not silent.empty
    assert not progress(draining=False).empty


def test_dead_letters_stay_and_are_not_waited_for() -> None:
    assert progress(dead_letters=7).empty
