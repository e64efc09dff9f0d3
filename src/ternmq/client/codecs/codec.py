"""Codecs turn objects into bodies, which are bytes, and back.

With a codec on `connect` (or on one call) every body goes through it, and `message.value` reads it
back. `message.body` always stays the raw bytes. Codecs never see keys, tags or properties.
"""

from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from ternmq.core.errors import BadConfig, BadRequest, DecodeError

CodecName = Literal["bytes", "json", "msgpack"]


@runtime_checkable
class Codec(Protocol):
    """What a codec of the application has to offer."""

    def encode(self, value: Any, /) -> bytes: ...

    def decode(self, body: bytes, /) -> Any: ...


def _plain(value: Any) -> Any:
    """What msgspec does not know: models of Pydantic say what they are made of."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"objects of type {type(value).__name__} are not supported")
    return dump(mode="json")


class Json:
    """UTF-8 JSON, by msgspec; models of Pydantic too."""

    def encode(self, value: Any, /) -> bytes:
        return msgspec.json.encode(value, enc_hook=_plain)

    def decode(self, body: bytes, /) -> Any:
        return msgspec.json.decode(body)


class Msgpack:
    """MessagePack, by msgspec."""

    def encode(self, value: Any, /) -> bytes:
        return msgspec.msgpack.encode(value, enc_hook=_plain)

    def decode(self, body: bytes, /) -> Any:
        return msgspec.msgpack.decode(body)


_NAMED: dict[str, Codec | None] = {"bytes": None, "json": Json(), "msgpack": Msgpack()}


def find_codec(codec: Codec | str | None) -> Codec | None:
    """The codec of that name, or the object itself; None leaves bodies as they are."""
    if codec is None:
        return None
    if isinstance(codec, str):
        if codec not in _NAMED:
            raise BadConfig(
                f"codec is {codec!r}; it can be 'bytes', 'json', 'msgpack' or an object"
            )
        return _NAMED[codec]
    if not isinstance(codec, Codec):
        raise BadConfig(f"{codec!r} is no codec: it needs the methods encode and decode")
    return codec


def encode_body(codec: Codec, value: Any) -> bytes:
    """Turn one object into a body; whatever the codec raises becomes one of our errors."""
    try:
        body = codec.encode(value)
    except Exception as error:
        raise BadRequest(f"the codec could not encode {type(value).__name__}: {error}") from error
    if not isinstance(body, bytes):
        raise BadRequest(f"the codec made {type(body).__name__}; a body is bytes")
    return body


def decode_body(codec: Codec | None, body: bytes) -> Any:
    """Turn a body back; without a codec it is the bytes themselves."""
    if codec is None:
        return body
    try:
        return codec.decode(body)
    except Exception as error:
        raise DecodeError(
            f"the codec could not decode a body of {len(body)} bytes: {error}"
        ) from error
