"""Frames of HTTP/2 (RFC 9113): their numbers, and the bytes of those that we send.

Every frame has nine bytes before it: size (3), kind, flags, stream (4). Reading them is `core`'s.
Pure.
"""

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD = Struct(">HBBBI")
HEAD_SIZE = 9
FRAME_SIZE_MAX = 16_384
"""What we take: the least that a server must. A larger frame would only be held longer."""
SENT_FRAME_SIZE_MAX = 65_536
"""What we send at most, where the other side takes it."""
WINDOW_MAX = 2**31 - 1
WINDOW_AT_FIRST = 65_535
STREAM_BITS = 2**31 - 1

END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_GIVEN = 0x20

_LONG = Struct(">I")
_SETTING = Struct(">HI")


class FrameKind(IntEnum):
    """What a frame is; other kinds are passed over."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Http2Setting(IntEnum):
    """What one side tells the other about itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class FaultCode(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class ConnectionFault(Exception):
    """The other side broke a rule that ends the connection; caught where bytes come in."""

    def __init__(self, code: FaultCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StreamFault(Exception):
    """The other side broke a rule that ends one stream; caught where frames are taken."""

    def __init__(self, code: FaultCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def pack_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream)


def settings_frame(settings: dict[Http2Setting, int]) -> bytes:
    payload = b"".join(_SETTING.pack(name, value) for name, value in settings.items())
    return pack_head(len(payload), FrameKind.SETTINGS, 0, 0) + payload


SETTINGS_TAKEN = pack_head(0, FrameKind.SETTINGS, ACK, 0)


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Names and values in the order sent; raises `ConnectionFault` where the size is wrong."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, "SETTINGS of a size that is none")
    return list(_SETTING.iter_unpack(payload))


def window_frame(stream: int, more: int) -> bytes:
    return pack_head(4, FrameKind.WINDOW_UPDATE, 0, stream) + _LONG.pack(more)


def reset_frame(stream: int, code: FaultCode) -> bytes:
    return pack_head(4, FrameKind.RST_STREAM, 0, stream) + _LONG.pack(code)


def ping_frame(payload: bytes, flags: int) -> bytes:
    return pack_head(8, FrameKind.PING, flags, 0) + payload


def goaway_frame(last_stream: int, code: FaultCode, message: str) -> bytes:
    payload = _LONG.pack(last_stream) + _LONG.pack(code) + message.encode()[:256]
    return pack_head(len(payload), FrameKind.GOAWAY, 0, 0) + payload


def read_long(payload: bytes) -> int:
    """Of a frame whose payload are four bytes; raises `ConnectionFault` where it has others."""
    if len(payload) != _LONG.size:
        raise ConnectionFault(FaultCode.FRAME_SIZE_ERROR, f"{len(payload)} bytes, not 4")
    return int(_LONG.unpack(payload)[0])


def without_padding(payload: bytes) -> bytes:
    """What a padded frame carries."""
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(FaultCode.PROTOCOL_ERROR, "more padding than there are bytes")
    return payload[1 : len(payload) - payload[0]]
