"""`delay=` and `at=`: what is taken, what is refused and with which words (Q7, R7)."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.batch.encoder import Due
from ternmq.batch.layout import DUE_MAX_MS
from ternmq.client.model.due import make_due, time_ms
from ternmq.core.errors import BadRequest

BERLIN = ZoneInfo("Europe/Berlin")


def test_neither_is_for_now() -> None:
    assert make_due(None, None) is None


@pytest.mark.parametrize(
    ("delay", "ms"),
    [
        (0, 0),
        (30, 30_000),
        (1.5, 1_500),
        (0.0001, 1),
        (timedelta(minutes=30), 1_800_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=731), 731 * 86_400_000),
    ],
)
def test_a_delay_is_seconds_or_a_timedelta_and_never_rounded_down(delay: Any, ms: int) -> None:
    assert make_due(delay, None) == Due(ms, relative=True)


@pytest.mark.parametrize(
    ("at", "ms"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1),
        (datetime(2026, 12, 24, 18, tzinfo=timezone(timedelta(hours=1))), 1_798_131_600_000),
        (datetime(2026, 12, 24, 18, tzinfo=BERLIN), 1_798_131_600_000),
        (datetime(2028, 2, 29, tzinfo=UTC), 1_835_395_200_000),
        (datetime.max.replace(tzinfo=UTC), DUE_MAX_MS),
    ],
)
def test_a_time_is_what_its_zone_says(at: datetime, ms: int) -> None:
    assert make_due(None, at) == Due(ms, relative=False)


def test_an_hour_that_comes_twice_is_two_hours() -> None:
    """The clocks go back on 25 October 2026: 02:30 comes at +02:00, then again at +01:00."""
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)

    assert time_ms(first.replace(fold=1)) - time_ms(first) == 3_600_000


@given(st.datetimes(max_value=datetime(9998, 1, 1), timezones=st.timezones()))
def test_a_time_is_never_before_what_was_asked_for(at: datetime) -> None:
    asked = at - datetime(1970, 1, 1, tzinfo=UTC)

    assert timedelta(0) <= max(asked, timedelta(0)) <= timedelta(milliseconds=time_ms(at))
    assert timedelta(milliseconds=time_ms(at)) < max(asked, timedelta(0)) + timedelta(seconds=0.001)


@pytest.mark.parametrize(
    ("delay", "at", "text"),
    [
        (5, datetime(2027, 1, 1, tzinfo=UTC), "not both"),
        (-1, None, "delay is -1; it cannot be below 0"),
        (timedelta(seconds=-1), None, "it cannot be below 0"),
        (float("nan"), None, "delay is nan; it is a number of seconds"),
        (float("inf"), None, "delay is inf; it is a number of seconds"),
        ("30m", None, "delay is '30m'; it is a number of seconds, or a timedelta"),
        (True, None, "delay is True"),
        (10**18, None, "ends after the year 9999"),
        (1e300, None, "ends after the year 9999"),
        (1.7e308, None, "ends after the year 9999"),
        (10**400, None, "ends after the year 9999"),
        (timedelta.max, None, "ends after the year 9999"),
        (None, datetime(2027, 1, 1), "has no time zone: write"),
        (None, "2027-01-01", "it is a datetime with a time zone"),
        (None, 1_800_000_000, "it is a datetime with a time zone"),
    ],
)
def test_what_cannot_be_a_due_time_is_refused_with_what_to_write(
    delay: Any, at: Any, text: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        make_due(delay, at)

    assert text in str(caught.value)
