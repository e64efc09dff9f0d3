"""Checks settings that applications pass: a mistake is refused by name before anything is sent.

A server that gets a record it cannot read closes the connection, because it cannot know what else
is wrong with its peer; everybody who shares the connection would notice. Pure.
"""

from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest, ProtocolError
from ternmq.wire.record import Record, pack, unpack

R = TypeVar("R", bound=Record)

_WORDS = {bool: "True or False", int: "a whole number", str: "a text", list[str]: "a list of texts"}


def change_of(kind: type[R], changes: dict[str, Any], **names: str) -> R:
    """A record that changes some settings of what `names` says."""
    known = [name for name in kind.__struct_fields__ if name not in names]
    for name, value in changes.items():
        if name not in known:
            raise BadRequest(f"there is no setting {name!r}; there are {', '.join(known)}")
        _check(kind, name, value, kind(**names, **{name: value}))
    return kind(**names, **changes)


def checked(settings: R) -> R:
    """Settings that came whole."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        _check(type(settings), name, value, type(settings)(**{name: value}))
    return settings


def _check(kind: type[R], name: str, value: object, record: R) -> None:
    try:
        unpack(pack(record), kind)
    except (BadRequest, ProtocolError, TypeError, ValueError):
        allowed = _described(get_type_hints(kind)[name])
        raise BadRequest(f"{name} is {shown(value)}; it can be {allowed}") from None


def _described(hint: Any) -> str:
    """What a field takes, for people."""
    if get_origin(hint) is Literal:
        return " or ".join(repr(each) for each in get_args(hint))
    found = _WORDS.get(hint)
    if found is not None:
        return found
    parts = [part for part in get_args(hint) if part is not NoneType]
    return " or ".join(_described(part) for part in parts) or str(hint)
