"""Ids on both sides."""

import pytest

from ternmq.core.ids import explicit_id_text, id_to_text
from ternmq.gateway.protocol.codes import Refused
from ternmq.gateway.protocol.message_ids import client_id_text, explicit_id


@pytest.mark.parametrize(
    "text", ["01AABBCCDDEEFF0011223344550000000A", "any", "x" * 15, "x" * 16, "x" * 200, "ü"]
)
def test_what_a_client_gave_comes_back(text: str) -> None:
    assert client_id_text(explicit_id_text(explicit_id(text))) == text


def test_an_id_of_ours_is_shown_as_it_is() -> None:
    text = id_to_text(2**127 + 5)

    assert client_id_text(text) == text


@pytest.mark.parametrize("text", ["", "x" * 201])
def test_an_id_has_a_size(text: str) -> None:
    with pytest.raises(Refused):
        explicit_id(text)
