"""Received bytes to frames, without a socket: made for `asyncio.BufferedProtocol`.

Theory of operation
-------------------
`get_buffer()` says where the next bytes should be put, `received(n)` that n of them are there; it
returns the frames which are complete by now. Three places hold bytes:

1. The *shared* buffer, handed in, used by every decoder of one thread: bytes are put there and
   frames are copied out of it before `received` returns, so nothing of it is in use in between.
2. The *rest*: the beginning of a frame, up to OWN_SIZE_MIN bytes, kept until more arrives and put
   back in front of the shared buffer then.
3. A buffer of the frame's *own*: a large frame of which at least OWN_SIZE_MIN bytes have arrived is
   received straight into its payload. It grows as bytes arrive, to at most GROWTH times of what
   was really sent, so that a header alone cannot make us allocate megabytes.

Rules
-----
1. Whatever the bytes are, nothing but `ProtocolError` comes out, in `failed`: frames in front of
   the bad one are still returned, everything after it is ignored.
2. A decoder never holds more than `size_max` (and a header) beyond the shared buffer.
3. The result does not depend on how the bytes were cut on their way.
"""

from ternmq.core.errors import ProtocolError
from ternmq.core.units import KIB
from ternmq.wire.frame import COMMANDS, FLAGS_MAX, FRAME_SIZE_MAX, HEADER, HEADER_SIZE, Frame

SHARED_SIZE = 256 * KIB
OWN_SIZE_MIN = 16 * KIB
GROWTH = 4

_unpack_header = HEADER.unpack_from


class FrameDecoder:
    """The receiving side of one connection."""

    __slots__ = (
        "_filled",
        "_own",
        "_own_size",
        "_own_view",
        "_rest",
        "_shared",
        "_view",
        "failed",
        "size_max",
    )

    def __init__(self, shared: bytearray, *, size_max: int = FRAME_SIZE_MAX) -> None:
        assert len(shared) >= 2 * (OWN_SIZE_MIN + HEADER_SIZE), "the rest must leave room for more"
        self._shared = shared
        self._view = memoryview(shared)
        self._rest = b""
        self._own: Frame | None = None
        self._own_view = memoryview(b"")
        self._own_size = 0
        self._filled = 0
        self.size_max = size_max
        self.failed: ProtocolError | None = None

    @property
    def first(self) -> memoryview:
        """What arrived last, from its beginning; to be looked at when it `failed`."""
        return self._view[:HEADER_SIZE]

    @property
    def partial(self) -> bool:
        """A frame has begun and is not complete."""
        return self._own is not None or bool(self._rest)

    @property
    def held(self) -> int:
        """Bytes allocated for a frame that is not complete."""
        return len(self._rest) if self._own is None else len(self._own_view)

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._own is not None:
            return self._own_view[self._filled :]
        rest = self._rest
        if rest:
            size = len(rest)
            self._view[:size] = rest
            return self._view[size:]
        return self._view

    def received(self, size: int) -> list[Frame]:
        """Take in `size` bytes that were put into the last `get_buffer()`."""
        if self._own is not None:
            return self._received_own(size)
        frames: list[Frame] = []
        if self.failed is not None:
            return frames
        shared, size_max = self._shared, self.size_max
        at, end = 0, len(self._rest) + size
        while end - at >= HEADER_SIZE:
            payload_size, command, flags, correlation = _unpack_header(shared, at)
            if payload_size > size_max or command not in COMMANDS or flags > FLAGS_MAX:
                self._rest = b""
                self.failed = _complaint(payload_size, size_max, command, flags)
                return frames
            begin = at + HEADER_SIZE
            stop = begin + payload_size
            if stop > end:
                break
            frames.append(Frame(command, flags, correlation, shared[begin:stop]))
            at = stop
        if at == end:
            self._rest = b""
        elif end - at < OWN_SIZE_MIN + HEADER_SIZE:
            self._rest = bytes(self._view[at:end])
        else:
            self._begin_own(at, end)
        return frames

    def _begin_own(self, at: int, end: int) -> None:
        """Give the incomplete frame at `at` a buffer of its own."""
        self._own_size, command, flags, correlation = _unpack_header(self._shared, at)
        self._rest = b""
        self._filled = end - at - HEADER_SIZE
        self._own = Frame(command, flags, correlation, bytearray())
        self._grow(self._view[at + HEADER_SIZE : end])

    def _grow(self, filled: memoryview) -> None:
        """Move to a larger buffer: never more than GROWTH times of what has really arrived."""
        assert self._own is not None
        payload = bytearray(min(self._own_size, GROWTH * len(filled)))
        payload[: len(filled)] = filled
        self._own.payload = payload
        self._own_view = memoryview(payload)

    def _received_own(self, size: int) -> list[Frame]:
        self._filled += size
        frame = self._own
        assert frame is not None
        if self._filled == self._own_size:
            self._own = None
            self._own_view = memoryview(b"")
            return [frame]
        if self._filled == len(self._own_view):
            self._grow(self._own_view)
        return []


def _complaint(size: int, size_max: int, command: int, flags: int) -> ProtocolError:
    if command not in COMMANDS:
        return ProtocolError(
            f"command {command} is unknown; is the peer something else than TernMQ?"
        )
    if flags > FLAGS_MAX:
        return ProtocolError(f"flags {flags:#06x} are unknown")
    return ProtocolError(f"a frame of {size} bytes; at most {size_max} are allowed here")
