"""Property values as text with a type byte, and back."""

from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from ternmq.batch.properties import check_properties, value_from_text, value_to_text
from ternmq.core.errors import BadRequest


class Colour(IntEnum):
    RED = 3


class Word(StrEnum):
    YES = "yes"


class Odd(str):
    """Says something else than it is."""

    def encode(self, *args: Any) -> bytes:
        raise RuntimeError("not me")

    def __str__(self) -> str:
        return "other"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("ä", "ä"),
        (-5, -5),
        (1.5, 1.5),
        (True, True),
        (b"\xff", b"\xff"),
        (10**3999, 10**3999),
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.uint8(7), 7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (Colour.RED, 3),
        (Word.YES, "yes"),
        pytest.param(Odd("me"), "me", id="odd"),
    ],
)
def test_a_value_reads_back_as_the_plain_type(value: Any, plain: Any) -> None:
    kept = check_properties({"a": value})["a"]

    assert (kept, type(kept)) == (plain, type(plain))
    for written in (value, kept):
        back = value_from_text(*value_to_text(written))
        assert (back, type(back)) == (plain, type(plain))


@pytest.mark.parametrize(
    "value", ["\ud800", 10**5000, -(10**4000), None, [1], object(), 1j], ids=type
)
def test_what_cannot_be_read_back_is_refused_with_its_name(value: Any) -> None:
    with pytest.raises(BadRequest, match="property 'amount'"):
        check_properties({"amount": value})


@pytest.mark.parametrize("name", ["\ud800", "", 7])
def test_a_name_is_text_that_utf8_can_write(name: Any) -> None:
    with pytest.raises(BadRequest, match="property name"):
        check_properties({name: 1})
