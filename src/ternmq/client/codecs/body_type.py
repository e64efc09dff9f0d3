"""Bodies as objects of a Python type, which says by itself how it is read.

    message.decode(Order)

Types that Pydantic made, or that have such a type inside, are read by Pydantic; all others by
msgspec (its structs, dataclasses, typed dicts, lists, dates …). The codec says what the bytes are:
MessagePack with `"msgpack"`, else JSON; `bytes` and, without a codec, `str` are the body as it is.
An own codec reads the body first, and its value is made to fit the type. What does not fit is a
`DecodeError` that says where. Never imports Pydantic unless the type needs it. Pure.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_args

import msgspec

from ternmq.client.codecs.codec import Codec, Json, Msgpack
from ternmq.core.errors import BadRequest, DecodeError

Decode = Callable[[Any], Any]
TYPES_CACHED = 1024


class BodyType:
    """One type and its ways in: from JSON, from MessagePack, from the value of an own codec."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.name = getattr(kind, "__name__", None) or str(kind)
        self._from_json: Decode
        self._from_msgpack: Decode
        self._from_value: Decode
        if made_by_pydantic(kind):
            self._from_json, self._from_msgpack, self._from_value = _by_pydantic(kind)
        else:
            self._from_json, self._from_msgpack, self._from_value = _by_msgspec(kind, self.name)

    def decode(self, body: bytes, codec: Codec | None) -> Any:
        """An object of the type; raises `DecodeError`."""
        if self.kind is bytes:
            return body
        try:
            if codec is None and self.kind is str:
                return body.decode("utf-8")
            if codec is None or isinstance(codec, Json):
                return self._from_json(body)
            if isinstance(codec, Msgpack):
                return self._from_msgpack(body)
            return self._from_value(codec.decode(body))
        except Exception as error:  # Validators are the application's code: anything may come.
            raise DecodeError(f"a body of {len(body)} bytes is no {self.name}: {error}") from error


@lru_cache(maxsize=TYPES_CACHED)
def _cached(kind: Any) -> BodyType:
    return BodyType(kind)


def body_type(kind: Any) -> BodyType:
    """The type, ready to decode; raises `BadRequest` where nobody can read into it."""
    try:
        return _cached(kind)
    except TypeError:  # Annotated with something that cannot be hashed.
        return BodyType(kind)


def made_by_pydantic(kind: Any) -> bool:
    """Is it, or one of its parts, a model or a dataclass of Pydantic?"""
    if hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__"):
        return True
    return any(made_by_pydantic(part) for part in get_args(kind))


def _by_pydantic(kind: Any) -> tuple[Decode, Decode, Decode]:
    from pydantic import TypeAdapter  # Its types are here, so it is.

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
    except Exception as error:  # Its own tree of errors; all mean the same here.
        raise BadRequest(f"Pydantic cannot read bodies as {kind!r}: {error}") from error
    return (
        adapter.validate_json,
        lambda body: adapter.validate_python(msgspec.msgpack.decode(body)),
        adapter.validate_python,
    )


def _by_msgspec(kind: Any, name: str) -> tuple[Decode, Decode, Decode]:
    try:
        for part in (kind, *get_args(kind)):
            if isinstance(msgspec.inspect.type_info(part), msgspec.inspect.CustomType):
                raise TypeError(f"{part!r} says nothing about its fields")
        from_json = msgspec.json.Decoder(kind).decode
        from_msgpack = msgspec.msgpack.Decoder(kind).decode
    except (TypeError, ValueError, NameError) as error:
        raise BadRequest(
            f"bodies cannot be read as {name}: {error}; use a dataclass, a msgspec.Struct, "
            "a Pydantic model or a built-in type"
        ) from error
    return from_json, from_msgpack, lambda value: msgspec.convert(value, kind)
