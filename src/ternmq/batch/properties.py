"""Message properties as Arrow map columns: names, values as text, one type byte per value.

Values travel as UTF-8 text so that Spark sees map<string,string>; the type byte gives Python the
original back. Integers and floats are their decimal text, booleans `true` and `false`, bytes
base 64.
"""

import base64
import binascii
from collections.abc import Mapping

from ternmq.core.errors import BadRequest, Corrupt

PropertyValue = str | int | float | bool | bytes

STRING, INTEGER, FLOAT, BOOLEAN, BYTES = range(5)
PROPERTIES_MAX = 256


def check_properties(properties: Mapping[str, PropertyValue]) -> None:
    """Refuse what could not be read back, naming the property."""
    if len(properties) > PROPERTIES_MAX:
        raise BadRequest(f"{len(properties)} properties; at most {PROPERTIES_MAX} are allowed")
    for name, value in properties.items():
        if not isinstance(name, str) or not name:
            raise BadRequest(f"property name {name!r} must be a non-empty string")
        if not isinstance(value, str | int | float | bytes):
            raise BadRequest(
                f"property {name!r} is a {type(value).__name__}; "
                "use str, int, float, bool or bytes, or put it into the body"
            )


def value_to_text(value: PropertyValue) -> tuple[int, bytes]:
    """The type byte and the text of one value."""
    if isinstance(value, str):
        return STRING, value.encode()
    if isinstance(value, bool):  # Before int: a bool is one.
        return BOOLEAN, b"true" if value else b"false"
    if isinstance(value, int):
        return INTEGER, b"%d" % value
    if isinstance(value, float):
        return FLOAT, repr(value).encode()
    return BYTES, base64.b64encode(value)


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
