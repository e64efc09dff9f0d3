"""The other side of a connection, by hand: frames as bytes, and bytes as frames."""

import struct
from dataclasses import dataclass, field

from ternmq.rpc.http2.core import Http2Core
from ternmq.rpc.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    PREFACE,
    FaultCode,
    FrameKind,
    pack_head,
    settings_frame,
)
from ternmq.rpc.http2.hpack import encode_headers
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.http2.request_head import RequestHead
from ternmq.rpc.http2.stream import Http2Stream, StreamOwner

Seen = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""
CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/t/echo"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return pack_head(len(payload), kind, flags, stream) + payload


def headers(stream: int, extra: list[tuple[str, str]] | None = None, *, end: bool = False) -> bytes:
    """A call, with more headers."""
    flags = END_HEADERS | (END_STREAM if end else 0)
    return frame(FrameKind.HEADERS, flags, stream, encode_headers([*CALL, *(extra or [])]))


def data(stream: int, payload: bytes, *, end: bool = False) -> bytes:
    return frame(FrameKind.DATA, END_STREAM if end else 0, stream, payload)


def message(body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(body)) + body


def reset(stream: int) -> bytes:
    return frame(FrameKind.RST_STREAM, 0, stream, struct.pack(">I", FaultCode.CANCEL))


HELLO = PREFACE + settings_frame({})


def split(written: bytes) -> list[Seen]:
    """Frames that were sent; the last has to be whole."""
    found, at = [], 0
    while at < len(written):
        high, low, kind, flags, stream = HEAD.unpack_from(written, at)
        end = at + 9 + (high << 8 | low)
        assert end <= len(written)
        found.append((kind, flags, stream, written[at + 9 : end]))
        at = end
    return found


class RecordedStream(Http2Stream):
    """Writes down what it is told."""

    __slots__ = ("bodies", "heads", "told")

    def __init__(self, owner: StreamOwner, number: int, send_left: int, window: int) -> None:
        super().__init__(owner, number, send_left, window)
        self.told: list[str] = []
        self.bodies = b""
        self.heads: list[RequestHead] = []

    def head(self, head: RequestHead) -> None:
        self.heads.append(head)

    def data(self, payload: bytes) -> None:
        self.bodies += payload

    def end(self) -> None:
        self.told.append("end")

    def gone(self) -> None:
        self.told.append("gone")

    def drained(self) -> None:
        self.told.append("drained")


@dataclass
class CoreUnderTest:
    """A core without a socket, and the streams that it made."""

    limits: CallLimits = field(default_factory=CallLimits)
    held: HeldBytes = field(default_factory=HeldBytes)
    made: dict[int, RecordedStream] = field(default_factory=dict)
    now: float = 100.0
    woken: int = 0

    def __post_init__(self) -> None:
        self.core = Http2Core(self.limits, self.held, self._make, self._wake, self.now)
        self.core.greet()

    def _make(self, core: Http2Core, number: int, send_left: int) -> RecordedStream | None:
        if len(core.streams) >= self.limits.streams_max:
            return None
        made = self.made[number] = RecordedStream(core, number, send_left, self.limits.window)
        return made

    def _wake(self) -> None:
        self.woken += 1

    def take(self, *sent: bytes) -> list[Seen]:
        """Let these come; what goes out."""
        for each in sent:
            self.core.receive(each, self.now)
        return self.out()

    def out(self) -> list[Seen]:
        found: list[Seen] = []
        while self.core.has_more:
            found += split(b"".join(self.core.pump()))
        return found

    @property
    def fault(self) -> FaultCode | None:
        return self.core.fault.code if self.core.fault is not None else None


def begun(limits: CallLimits | None = None) -> CoreUnderTest:
    """One that has greeted and was greeted."""
    made = CoreUnderTest(limits or CallLimits())
    made.take(HELLO)
    return made


def resets(seen: list[Seen]) -> list[tuple[int, int]]:
    """Streams that were reset, and why."""
    return [
        (stream, int.from_bytes(payload, "big"))
        for kind, _, stream, payload in seen
        if kind == FrameKind.RST_STREAM
    ]
