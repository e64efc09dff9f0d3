"""Where the next page of a list begins, as one word that goes into a URL. Pure.

A cursor is JSON in base64url: a name to go on after, or a position on each broker group. It comes
back from outside, so it is read as hostile: anything that is not one of ours is a `BadRequest`.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated

import msgspec

from ternmq.core.errors import BadRequest

CURSOR_SIZE_MAX = 4_096
Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


def names_cursor(after: str) -> str:
    """Of a list that is sorted by name."""
    return _text(after)


def read_names(cursor: str) -> str:
    try:
        return msgspec.convert(_value(cursor), str) if cursor else ""
    except msgspec.ValidationError:
        raise _strange(cursor) from None


def positions_cursor(positions: Mapping[str, int]) -> str:
    """Of messages: a sequence for each broker group."""
    return _text(dict(positions))


def read_positions(cursor: str) -> dict[str, int]:
    try:
        return msgspec.convert(_value(cursor), dict[str, Position]) if cursor else {}
    except msgspec.ValidationError:
        raise _strange(cursor) from None


def _text(value: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).rstrip(b"=").decode()


def _value(cursor: str) -> object:
    try:
        data = cursor.encode("ascii")
        if len(data) > CURSOR_SIZE_MAX:
            raise ValueError
        return msgspec.json.decode(base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError, RecursionError):
        raise _strange(cursor) from None


def _strange(cursor: str) -> BadRequest:
    return BadRequest(f"{cursor[:40]!r} is not a cursor: use `next` of the page before as it is")
