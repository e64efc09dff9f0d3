"""Cursors go out and come back; anything else that comes is refused with words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.api.cursors import names_cursor, positions_cursor, read_names, read_positions
from ternmq.core.errors import BadRequest


@given(st.text(max_size=50))
def test_a_name_comes_back(name: str) -> None:
    if name and not any(0xD800 <= ord(letter) < 0xE000 for letter in name):
        assert read_names(names_cursor(name)) == name


@given(st.dictionaries(st.text("abc", max_size=5), st.integers(0, 2**63 - 1), max_size=5))
def test_positions_come_back(positions: dict[str, int]) -> None:
    assert read_positions(positions_cursor(positions)) == positions


@given(st.text(min_size=1, max_size=40))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    for read in (read_names, read_positions):
        try:
            read(text)
        except BadRequest as error:
            assert "use `next`" in error.message


@pytest.mark.parametrize("positions", [{"main": -1}, {"main": "x"}, {"main": 2**64}])
def test_positions_that_cannot_be_are_refused(positions: object) -> None:
    with pytest.raises(BadRequest):
        read_positions(positions_cursor(positions))  # type: ignore[arg-type]
