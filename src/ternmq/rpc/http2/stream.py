"""One stream of a connection: what it may still send and be sent, and what waits to be sent.

The part of a call that is HTTP/2. What the call does is a subclass's: it is told what comes
(`head`, `data`, `end`, `gone`, `drained`) and says what goes (`write`, `finish`, `reset`). Frames
are made by the core at the end of a turn of the loop, so that messages of one turn share them.
Pure.
"""

from typing import Protocol

from ternmq.rpc.http2.answer_heads import ANSWER_BEGIN
from ternmq.rpc.http2.frames import FaultCode
from ternmq.rpc.http2.request_head import RequestHead

MESSAGE_HEAD_SIZE = 5
"""Before each message: compressed or not, and its size."""


class StreamOwner(Protocol):
    """What a stream needs of its connection."""

    def ready(self, stream: "Http2Stream", size: int) -> None:
        """A stream has something to send, so many bytes more than before."""

    def credit(self, stream: "Http2Stream", size: int) -> None:
        """So much of what came is dealt with: the other side may send as much again."""

    def reset(self, stream: "Http2Stream", code: FaultCode) -> None:
        """End it now, both ways."""


class Http2Stream:
    """The stream of one call."""

    __slots__ = (
        "body_left",
        "closed",
        "credited",
        "end_block",
        "ended",
        "head_block",
        "number",
        "owner",
        "pending",
        "pending_size",
        "receive_left",
        "send_left",
    )

    def __init__(self, owner: StreamOwner, number: int, send_left: int, receive_left: int) -> None:
        self.owner = owner
        self.number = number
        self.send_left = send_left
        """The window of the other side; settings can make it negative."""
        self.receive_left = receive_left
        self.credited = 0
        """Dealt with, and not told yet."""
        self.body_left: int | None = None
        """Bytes that it has announced and not sent."""
        self.ended = False
        """The caller has said its last."""
        self.closed = False
        """Nothing comes or goes any more."""
        self.head_block: bytes | None = ANSWER_BEGIN
        """To be sent first; None: it was."""
        self.end_block: bytes | None = None
        """To be sent last; empty: an end without headers."""
        self.pending: list[bytes | memoryview] = []
        self.pending_size = 0

    # Told by the core.

    def head(self, head: RequestHead) -> None:
        """A call begins."""
        raise NotImplementedError

    def data(self, payload: bytes) -> None:
        """Some bytes of its messages."""
        raise NotImplementedError

    def end(self) -> None:
        """The caller has said its last."""
        raise NotImplementedError

    def gone(self) -> None:
        """The caller has given up, or is not there any more."""
        raise NotImplementedError

    def drained(self) -> None:
        """Nothing waits to be sent any more."""
        raise NotImplementedError

    # Said by the call.

    def write(self, message: bytes) -> None:
        """Send one message, when it is its turn."""
        if self.closed:
            return
        size = len(message)
        self.pending.append(b"\0" + size.to_bytes(4, "big") + message)
        size += MESSAGE_HEAD_SIZE
        self.pending_size += size
        self.owner.ready(self, size)

    def finish(self, block: bytes) -> None:
        """These headers are the last that is sent."""
        if not self.closed:
            self.end_block = block
            self.owner.ready(self, 0)

    def finish_at_once(self, block: bytes) -> None:
        """These headers are all that is sent; nothing was before."""
        self.head_block = None
        self.finish(block)

    def finish_plain(self, block: bytes, text: bytes) -> None:
        """An answer that is no message: its headers, and its bytes, which are its end."""
        self.head_block = block
        self.pending, self.pending_size, self.end_block = [text], len(text), b""
        self.owner.ready(self, len(text))

    def take(self, size: int) -> list[bytes | memoryview]:
        """The next bytes that wait."""
        waiting = self.pending
        self.pending_size -= size
        if not self.pending_size:
            self.pending = []
            return waiting
        whole = memoryview(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        self.pending = [whole[size:]]
        return [whole[:size]]

    @property
    def answered(self) -> bool:
        """Something of its answer has gone out."""
        return self.head_block is None
