"""Handles of messages: read back as they were, and nothing else is one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.client.consuming.lease_handle import LeaseHandle, read_handle
from ternmq.core.errors import BadRequest

numbers = st.integers(0, 2**62 - 1)


@given(group=st.text(min_size=1, max_size=60), lease=numbers, key=numbers, sequence=numbers)
def test_a_handle_is_read_back(group: str, lease: int, key: int, sequence: int) -> None:
    try:
        group.encode()
    except UnicodeEncodeError:
        return
    handle = LeaseHandle(group, lease, key, sequence)

    assert read_handle(handle.text()) == handle


@given(st.text())
def test_nothing_else_raises_anything_but_words(text: str) -> None:
    try:
        read_handle(text)
    except BadRequest as error:
        assert "no handle" in error.message


@pytest.mark.parametrize(
    "text", ["", "AQ", "nonsense!", LeaseHandle("", 1, 1, 1).text(), "A" * 513, "é" * 40]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="no handle"):
        read_handle(text)
