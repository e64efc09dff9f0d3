"""Text of others, as a terminal may show it: what would drive the terminal is escaped.

Keys, tags, hosts, addresses and error texts are written by whoever sends messages. An escape
sequence in one would move the cursor, rename the window or worse; a mark that turns the direction
of writing makes a line say something else than it does. Pure.
"""

import json
import re
from typing import Any

_OTHER = re.compile(r"[^\n -~]")
"""What has to be looked at; most text has none of it."""


def printable(text: str, *, keep: str = "") -> str:
    """A text with everything escaped that is not to be seen, besides what is in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in keep else _escaped(letter) for letter in text
    )


def printable_lines(text: str) -> str:
    """Several lines of our own, each made printable."""
    return printable(text, keep="\n\t")


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that reads as the same value and cannot drive a terminal either."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _OTHER.sub(lambda found: _json_escaped(found.group()), text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _json_escaped(letter: str) -> str:
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]
