"""Slots as people type them and see them."""

import pytest

from ternmq.cli.servers.slots import parse_slots, spans
from ternmq.core.errors import BadRequest


def test_slots_are_numbers_and_ranges() -> None:
    assert parse_slots("512, 0-3,2") == [0, 1, 2, 3, 512]
    assert spans([512, 3, 1, 2, 0]) == "0-3,512"


@pytest.mark.parametrize(
    "text",
    ["", "x", "1-", "5-x", "1024", "3-2000", "-1", "9-3", "0-99999999999", "0-" + "9" * 9_000],
)
def test_what_names_no_slots_is_one_clear_line(text: str) -> None:
    with pytest.raises(BadRequest, match="slot"):
        parse_slots(text)
