"""What `tern send` makes of its arguments."""

from pathlib import Path

import pytest

from ternmq.cli.messages.send import check_sources, parse_property
from ternmq.core.errors import BadRequest


def test_properties_are_text_unless_said_otherwise() -> None:
    assert parse_property("color=red") == ("color", "red")
    assert parse_property("equation=a=b") == ("equation", "a=b")
    assert parse_property("empty=") == ("empty", "")
    assert parse_property("amount:=12") == ("amount", 12)
    assert parse_property("price:=1.5") == ("price", 1.5)
    assert parse_property("paid:=true") == ("paid", True)


@pytest.mark.parametrize("text", ["color", "=red", ":=1", "amount:=many", "amount:=[1]", "a:=null"])
def test_what_is_not_a_property_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"property|after :="):
        parse_property(text)


def test_bodies_come_from_one_place() -> None:
    with pytest.raises(BadRequest, match="not several"):
        check_sources(["a"], file=Path("x"), lines=False, count=1)
    with pytest.raises(BadRequest, match="read once only"):
        check_sources([], file=None, lines=True, count=2)
    check_sources(["a"], file=None, lines=False, count=3)
