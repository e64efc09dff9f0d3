"""Message properties as Arrow map columns: names, values as text, one type byte per value.

Values travel as UTF-8 text so that Spark sees map<string,string>; the type byte gives Python the
original back. Integers and floats are their decimal text, booleans `true` and `false`, bytes
base 64. Subclasses (`numpy.float64`, an `IntEnum`) and numpy's numbers become the plain type they
stand for, so that what is written can be read back.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import numpy as np

from ternmq.core.errors import BadRequest, Corrupt

PropertyValue = str | int | float | bool | bytes

STRING, INTEGER, FLOAT, BOOLEAN, BYTES = range(5)
PROPERTIES_MAX = 256
INTEGER_DIGITS_MAX = 4_000  # Python itself reads 4,300 digits, unless told otherwise.
INTEGER_BITS_MAX = 13_287
_PLAIN = (str, int, float, bool, bytes)


def check_properties(properties: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """A copy with plain names and values; refuses what could not be read back, naming it."""
    if len(properties) > PROPERTIES_MAX:
        raise BadRequest(f"{len(properties)} properties; at most {PROPERTIES_MAX} are allowed")
    checked: dict[str, PropertyValue] = {}
    for name, value in properties.items():
        if not isinstance(name, str) or not name:
            raise BadRequest(f"property name {name!r} must be a non-empty string")
        name = str.__str__(name)
        plain = plain_value(value)
        if plain is None:
            raise BadRequest(
                f"property {name!r} is a {type(value).__name__}; "
                "use str, int, float, bool or bytes, or put it into the body"
            )
        if not _is_utf8(name):
            raise BadRequest(f"property name {name!r} cannot be written as UTF-8")
        if isinstance(plain, str) and not _is_utf8(plain):
            raise BadRequest(f"property {name!r} cannot be written as UTF-8: it has a surrogate")
        if isinstance(plain, int) and plain.bit_length() > INTEGER_BITS_MAX:
            raise BadRequest(
                f"property {name!r} is an int of more than {INTEGER_DIGITS_MAX} digits: "
                "send it as text or bytes"
            )
        checked[name] = plain
    return checked


def plain_value(value: Any) -> PropertyValue | None:
    """The value as exactly one of the five types; None when it is of no such kind."""
    if type(value) in _PLAIN:
        return value  # type: ignore[no-any-return]
    if isinstance(value, str):  # By the type's own method: subclasses may say something else.
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return bytes(memoryview(value))
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating):
        return float(value)
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def value_to_text(value: PropertyValue) -> tuple[int, bytes]:
    """The type byte and the text of one value."""
    plain = plain_value(value)
    if isinstance(plain, str):
        return STRING, plain.encode()
    if isinstance(plain, bool):  # Before int: a bool is one.
        return BOOLEAN, b"true" if plain else b"false"
    if isinstance(plain, int):
        return INTEGER, b"%d" % plain
    if isinstance(plain, float):
        return FLOAT, repr(plain).encode()
    if isinstance(plain, bytes):
        return BYTES, base64.b64encode(plain)
    raise BadRequest(f"a property value is a {type(value).__name__}")


def value_from_text(kind: int, text: bytes) -> PropertyValue:
    """The value that `value_to_text` was given."""
    try:
        if kind == STRING:
            return text.decode()
        if kind == BOOLEAN:
            return text == b"true"
        if kind == INTEGER:
            return int(text)
        if kind == FLOAT:
            return float(text)
        if kind == BYTES:
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise Corrupt(f"a property value does not read as its type: {error}") from error
    raise Corrupt(f"property type {kind} is not known here")
