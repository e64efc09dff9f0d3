"""The base of every message, and its bytes: msgpack arrays."""

from typing import Any, TypeVar

import msgspec

from ternmq.core.errors import BadRequest, ProtocolError


class Record(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Base of everything that travels as msgpack."""


_encoder = msgspec.msgpack.Encoder()
T = TypeVar("T", bound=Record)
_decoders: dict[type[Record], msgspec.msgpack.Decoder[Any]] = {}


def pack(record: Record) -> bytes:
    try:
        return _encoder.encode(record)
    except (UnicodeEncodeError, OverflowError) as error:  # A lone surrogate, a huge number.
        raise BadRequest(f"{type(record).__name__} cannot be sent: {error}") from error


def unpack(payload: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Read a request or answer; a mismatch is the peer's mistake, never our bug."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        return decoder.decode(payload)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from error
