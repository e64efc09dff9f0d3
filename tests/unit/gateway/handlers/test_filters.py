"""Filter expressions of RocketMQ clients."""

from typing import Any

import pytest

from ternmq.gateway.handlers.filters import read_filter
from ternmq.gateway.protocol.codes import Refused
from ternmq.gateway.protocol.messages import message_class


def expression(text: str, kind: int = 1) -> Any:
    return message_class("FilterExpression")(type=kind, expression=text)


@pytest.mark.parametrize(
    ("text", "tag"), [("*", ""), ("", ""), ("a", "a"), (" a||b || a", "a || b")]
)
def test_tags_are_read(text: str, tag: str) -> None:
    assert read_filter(expression(text)) == (tag, "")


def test_sql_goes_to_the_broker_as_it_is() -> None:
    assert read_filter(expression("a > 5", 2)) == ("", "a > 5")


@pytest.mark.parametrize(("text", "kind"), [("a || ", 1), ("a || *", 1), ("", 2), ("x" * 5000, 1)])
def test_what_cannot_be_read_is_refused(text: str, kind: int) -> None:
    with pytest.raises(Refused):
        read_filter(expression(text, kind))
