"""The base of every message, and its bytes: msgpack arrays."""

from typing import Annotated, Any, TypeVar

import msgspec

from ternmq.core.errors import BadRequest, ProtocolError

NUMBER_MAX = 2**62
Number = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
"""A whole number of a message. It fits into 64 bits also after something was added to it, so that
databases, numpy and struct take it."""


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
    except RecursionError:  # Fields that we do not know are skipped, and may be nested at will.
        raise ProtocolError(f"not a {kind.__name__}: it is nested too deeply") from None
