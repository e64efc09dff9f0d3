"""Times as people type them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from ternmq.cli.terminal.times import parse_at, parse_delay, parse_when
from ternmq.core.errors import BadRequest


def test_a_delay_has_its_unit() -> None:
    assert parse_delay("30m") == timedelta(minutes=30)
    assert parse_delay("1h30m") == timedelta(minutes=90)
    assert parse_delay("250ms") == timedelta(milliseconds=250)


@pytest.mark.parametrize("text", ["", "soon", "30", "-5s", "nan", "5x", "9" * 400 + "d"])
def test_what_is_not_a_delay_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"duration|too long"):
        parse_delay(text)


def test_a_time_of_a_message_needs_its_zone() -> None:
    """R7: a wrong guess would be found out too late."""
    christmas = datetime(2026, 12, 24, 18, tzinfo=timezone(timedelta(hours=1)))

    assert parse_at("2026-12-24T18:00:00+01:00") == christmas
    assert parse_at("2026-12-24T17Z") == christmas
    with pytest.raises(BadRequest, match=r"has no time zone: write 2026-12-24T18:00Z for UTC"):
        parse_at("2026-12-24T18:00")
    with pytest.raises(BadRequest, match="is not a time; write for example"):
        parse_at("tomorrow")


def test_a_time_that_chooses_is_utc_without_one() -> None:
    assert parse_when(None) is None
    assert parse_when("2026-12-24T17") == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert parse_when("2026-12-24") == datetime(2026, 12, 24, tzinfo=UTC)
