"""Where reading begins, as people write it."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ternmq.client.reading.written_start import as_start, parse_moment, parse_start
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.groups import Start

NOW = datetime(2025, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        (" latest ", "latest"),
        ("0", 0),
        ("1234", 1234),
        ("10m", NOW - timedelta(minutes=10)),
        ("1h30m", NOW - timedelta(minutes=90)),
        ("2025-01-30", datetime(2025, 1, 30, tzinfo=UTC)),
        ("2025-01-30T10:00Z", datetime(2025, 1, 30, 10, tzinfo=UTC)),
        ("2025-01-30T10:00:00.5", datetime(2025, 1, 30, 10, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_a_place_is_a_word_a_sequence_a_time_or_how_long_ago(text: str, place: Any) -> None:
    assert parse_start(text, now=NOW) == place


def test_a_time_with_a_zone_keeps_it() -> None:
    at = parse_start("2025-01-30T10:00+02:00", now=NOW)

    assert at == datetime(2025, 1, 30, 10, tzinfo=timezone(timedelta(hours=2)))


@pytest.mark.parametrize("text", ["", "begin", "-5", "5.5", "2025-13-01", "m10"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(BadRequest, match="write earliest, latest, a sequence"):
        parse_start(text, now=NOW)


def test_places_become_what_the_wire_carries() -> None:
    assert as_start("latest") == Start(at="latest")
    assert as_start(7) == Start(at="sequence", value=7)
    assert as_start(NOW) == Start(at="time", value=1_738_324_800_000)


@pytest.mark.parametrize(
    "text", ["18446744073709551616", "9223372036854775808", "9" * 5000], ids=["2**64", "2**63", "9"]
)
def test_a_sequence_beyond_the_last_is_refused_with_the_range(text: str) -> None:
    with pytest.raises(BadRequest, match="a sequence is 0 to 9223372036854775807"):
        parse_start(text, now=NOW)


def test_the_last_sequence_is_a_place() -> None:
    assert parse_start("9223372036854775807", now=NOW) == 2**63 - 1


def test_longer_ago_than_the_calendar_is_refused() -> None:
    with pytest.raises(BadRequest, match="ago is before the year 1"):
        parse_start("99999999999d", now=NOW)


def test_a_time_before_1970_is_the_beginning() -> None:
    assert as_start(datetime(1969, 1, 1, tzinfo=UTC)) == Start(at="time", value=0)


def test_a_moment_is_a_time_or_how_long_ago_and_the_flag_is_named() -> None:
    assert parse_moment("--from", "10m", now=NOW) == NOW - timedelta(minutes=10)
    for text in ("earliest", "17"):
        with pytest.raises(BadRequest, match=f"--from is '{text}'; write a time"):
            parse_moment("--from", text, now=NOW)
