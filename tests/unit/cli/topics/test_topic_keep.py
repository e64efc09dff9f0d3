"""What `tern topic set --keep` costs, in words (R16)."""

import pytest

from ternmq.cli.topics.topic_keep import KeepCost, parse_keep, shown_duration, shown_keep
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms


@pytest.mark.parametrize("text", ["1ms", "5s", "1h30m", "3d", "10d4h", "0s"])
def test_durations_are_shown_as_they_are_typed(text: str) -> None:
    assert shown_duration(parse_duration_ms(text)) == text


def test_nothing_of_its_own_is_said() -> None:
    assert (parse_keep(None), parse_keep("0"), parse_keep("1h")) == (None, 0, 3_600_000)
    assert (shown_keep(0), shown_keep(60_000)) == ("as the broker", "1m")
    with pytest.raises(BadRequest, match="is not a duration"):
        parse_keep("soon")


def test_the_question_names_what_goes_and_who_has_not_read() -> None:
    asked = KeepCost(7, {"mail": 3, "billing": 1}).question("orders", 3_600_000)

    assert asked.startswith("7 messages of orders are older than 1h and go for good.")
    assert "(billing 1, mail 3)" in asked
    assert "unread" not in KeepCost(7, {}).question("orders", 1)
