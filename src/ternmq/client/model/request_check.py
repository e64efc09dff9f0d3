"""The last gate before a request is sent: would the server be able to read it?

A server that gets a record it cannot read closes the connection, because it cannot know what else
is wrong with its peer; everybody who shares the connection would notice. So requests that carry
what applications passed are read back here, by the rules of the server, and a value of a wrong type
is refused by the name of its field. For questions and orders, never for messages. Pure.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ternmq.client.model.durations import typed
from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest, ProtocolError
from ternmq.wire.record import Record, pack, unpack

R = TypeVar("R", bound=Record)

_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    str: "a text",
    bytes: "bytes",
    float: "a number",
    Any: "a value",
    datetime: "a datetime with a time zone",
    timedelta: "a timedelta",
    Path: "a path",
    Callable: "a function",
    Mapping: "a dict",
    dict: "a dict",
    list[str]: "a list of texts",
    list[int]: "a list of whole numbers",
    list[tuple[int, int]]: "a list of pairs of whole numbers, first and end",
}
_PLACE = re.compile(r"at `\$\[(\d+)\]")


def sendable(record: R) -> R:
    """The record; raises `BadRequest` that names the field which no server could read."""
    kind = type(record)
    try:
        read = unpack(pack(record), kind)
    except (BadRequest, ProtocolError, TypeError, ValueError, RecursionError) as error:
        place = _PLACE.search(str(error))
        names = kind.__struct_fields__
        name = names[int(place[1])] if place else _unpackable(record)
        if name is None:
            raise BadRequest(f"{kind.__name__} cannot be sent: {shown(error)}") from None
        raise refusal(kind, name, getattr(record, name)) from None
    for name in kind.__struct_fields__:  # A time is written as a text, which nobody meant.
        value = getattr(record, name)
        if isinstance(getattr(read, name), str) and not isinstance(value, str):
            raise refusal(kind, name, value)
    return record


def refusal(kind: type[Record], name: str, value: object) -> BadRequest:
    """Says what a field can be."""
    wanted = described(get_type_hints(kind, include_extras=True)[name])
    return BadRequest(f"{name} is {typed(value)}; it can be {wanted}")


def described(hint: Any) -> str:
    """What an argument or a field takes, for people."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return described(parts[0])
    if origin is Literal:
        return " or ".join(repr(each) for each in parts)
    if origin in (Union, UnionType):
        words = dict.fromkeys(described(part) for part in parts if part is not NoneType)
        return " or ".join(words)
    found = _WORDS.get(_plain(hint)) or _WORDS.get(origin)
    if found is not None:
        return found
    if origin is not None:
        return f"a list; each is {described(parts[0])}" if parts else f"a {origin.__name__}"
    return f"a {hint.__name__}" if isinstance(hint, type) else str(hint)


def _plain(hint: Any) -> Any:
    """Without the bounds of numbers."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (list, tuple) and parts:
        return origin[tuple(_plain(part) for part in parts)]
    return hint


def _unpackable(record: Record) -> str | None:
    """The first field that cannot even be written."""
    for name in record.__struct_fields__:
        try:
            pack(_Lone(value=getattr(record, name)))
        except (BadRequest, TypeError, ValueError, RecursionError):
            return name
    return None


class _Lone(Record, frozen=True):
    value: Any
