"""Durations: seconds or a timedelta, and what is said about others."""

from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from ternmq.client.model.durations import maybe_seconds_of, seconds_of
from ternmq.core.errors import BadConfig, BadRequest


def test_seconds_and_timedeltas_mean_the_same() -> None:
    assert (
        seconds_of("wait", 90, 0, 100) == seconds_of("wait", timedelta(minutes=1.5), 0, 100) == 90
    )
    assert maybe_seconds_of("wait", None, 0, 1) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("5s", "wait is '5s'; it is a number of seconds, or a timedelta"),
        (None, "wait is None; it is a number of seconds, or a timedelta"),
        (True, "wait is True; it is a number of seconds, or a timedelta"),
        (seconds_of, "(function); it is a number of seconds, or a timedelta"),
        (-1, "wait is -1; it can be 0 to 7 days, as a number of seconds or a timedelta"),
        (nan, "wait is nan; it can be 0 to 7 days"),
        (inf, "wait is inf; it can be 0 to 7 days"),
        (timedelta(days=8), "it can be 0 to 7 days"),
    ],
)
def test_a_refusal_says_what_to_write(value: Any, said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        seconds_of("wait", value, 0, 7 * 24 * 3600)
    assert said in caught.value.message


def test_settings_are_refused_as_settings() -> None:
    with pytest.raises(BadConfig, match="wait is 11; it can be 0 to 10,"):
        seconds_of("wait", 11, 0, 10, BadConfig)
