"""Text of others on a terminal: nothing in it moves a cursor or turns a line around."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.cli.terminal.printable import json_text, printable, printable_lines

HOSTILE = {
    "\x1b]0;mine\x07": "\\x1b]0;mine\\x07",
    "a\rb": "a\\rb",
    "\x9b2J": "\\x9b2J",
    "pay \u202e00.1": "pay \\u202e00.1",
    "\u2066x\u2069": "\\u2066x\\u2069",
    "a\x00b": "a\\x00b",
    "two\nlines": "two\\nlines",
    "\u2028": "\\u2028",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_drives_a_terminal_is_escaped(text: str) -> None:
    assert printable(text) == HOSTILE[text]


def test_what_people_read_stays_as_it_is() -> None:
    for text in ("order.paid", "größe 12 €", "日本語", "a\\x1b", "🦆"):
        assert printable(text) == printable_lines(text) == text
    assert printable_lines("one\n\ttwo\r") == "one\n\ttwo\\r"


@given(st.text())
def test_no_text_leaves_anything_that_is_not_printable(text: str) -> None:
    assert printable(text).isprintable()


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_json_is_the_same_value_and_as_harmless(value: dict[str, object]) -> None:
    shown = json_text(value, indent=2)

    assert json.loads(shown) == value
    assert shown.replace("\n", "").isprintable()
