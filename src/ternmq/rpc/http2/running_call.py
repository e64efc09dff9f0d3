"""One gRPC call on its stream: its messages gathered, its handler run, its answer sent.

A request that is whole starts the handler as a task. A unary answer leaves with its end in one go;
of a stream of answers the next is asked for when the one before could be sent. When the caller has
gone, or its deadline has passed, the task is cancelled; until that has ended it counts as a call.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Protocol

from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.http2.answer_heads import end_block, http_block, only_block
from ternmq.rpc.http2.calls import (
    CalledMethod,
    CallKind,
    CallRefused,
    CallStatus,
    CallTable,
    RemoteCall,
)
from ternmq.rpc.http2.deadlines import CallDeadlines
from ternmq.rpc.http2.frames import FaultCode
from ternmq.rpc.http2.limits import CallLimits, HeldBytes
from ternmq.rpc.http2.request_head import IDENTITY, RequestHead
from ternmq.rpc.http2.stream import MESSAGE_HEAD_SIZE, Http2Stream, StreamOwner

HTTP_TEXT = b"This port answers gRPC calls only.\n"
BUG = "a bug of ours; the log of the server has it"
LATE = "its deadline has passed"


class CallPlace(Protocol):
    """What a call needs of the connection and the listener that it came through."""

    loop: asyncio.AbstractEventLoop
    table: CallTable
    limits: CallLimits
    held: HeldBytes
    deadlines: CallDeadlines
    peer: str
    secure: bool

    def ended(self) -> None:
        """A call has ended, its task included."""


class RunningCall(Http2Stream):
    """From its headers to its end."""

    __slots__ = (
        "_buffer",
        "_call",
        "_head",
        "_held",
        "_messages",
        "_method",
        "_place",
        "_room",
        "_started",
        "_task",
        "_tick",
    )

    def __init__(self, owner: StreamOwner, number: int, send_left: int, place: CallPlace) -> None:
        super().__init__(owner, number, send_left, place.limits.window)
        self._place = place
        self._method: CalledMethod | None = None
        self._head: RequestHead | None = None
        self._call: RemoteCall | None = None
        self._buffer: bytes | bytearray = b""
        self._held = 0
        self._messages: CallMessages | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self._room: asyncio.Future[None] | None = None
        self._tick = -1

    # What comes.

    def head(self, head: RequestHead) -> None:
        place = self._place
        self._head = head
        if head.http_status != 200:
            return  # Answered when it has said its last.
        if head.refusal is not None:
            self._refuse(head.refusal)
            return
        method = self._method = place.table.method(head.path)
        if method is None:
            self._end_with(CallStatus.UNIMPLEMENTED, "there is no such method")
            return
        deadline = None
        if head.timeout_s is not None:
            deadline = place.loop.time() + head.timeout_s
            self._tick = place.deadlines.add(self, deadline)
        self._call = RemoteCall(
            method=head.path,
            metadata=head.metadata,
            deadline=deadline,
            peer=place.peer,
            secure=place.secure,
        )
        if method.kind is CallKind.BOTH_WAYS:
            self._messages = CallMessages(self)
            self._start(self._run_both_ways(method, self._call, self._messages))

    def data(self, payload: bytes) -> None:
        method = self._method
        if method is None or self.end_block is not None:
            self.owner.credit(self, len(payload))
            return
        self._held += len(payload)
        self._place.held.requests += len(payload)
        if not self._buffer and self._messages is None and _is_whole(payload, method):
            self._buffer = payload  # The usual case: one message, all in one frame.
            return
        self._buffer = bytearray(self._buffer) if isinstance(self._buffer, bytes) else self._buffer
        self._buffer += payload
        if self._messages is None:
            self.owner.credit(self, len(payload))
        try:
            self._check_message(method)
        except CallRefused as refused:
            self._refuse(refused)

    def release(self, size: int) -> None:
        """So much of what it sent is with its handler."""
        if self._held >= size:
            self._held -= size
            self._place.held.requests -= size

    def _check_message(self, method: CalledMethod) -> None:
        """Look at the message that is gathered; of a stream hand on those that are whole."""
        buffer, messages, place = self._buffer, self._messages, self._place
        assert isinstance(buffer, bytearray)
        if place.held.requests > place.limits.requests_held_max:
            raise CallRefused(CallStatus.RESOURCE_EXHAUSTED, "too many requests are under way")
        while len(buffer) >= MESSAGE_HEAD_SIZE:
            size = int.from_bytes(buffer[1:5], "big")
            if buffer[0]:
                raise self._compressed()
            if size > method.request_size_max:
                raise CallRefused(
                    CallStatus.RESOURCE_EXHAUSTED,
                    f"a request of {size} bytes; at most {method.request_size_max}",
                )
            whole = MESSAGE_HEAD_SIZE + size
            if messages is None:
                if len(buffer) > whole:
                    raise CallRefused(CallStatus.INTERNAL, "more than one message in a request")
                return
            if len(buffer) < whole:
                self._lend(messages, len(buffer))
                return
            message = bytes(buffer[MESSAGE_HEAD_SIZE:whole])
            del buffer[:whole]
            messages.put(message, whole)

    def _lend(self, messages: "CallMessages", size: int) -> None:
        """A message that is larger than the window would never be whole."""
        more = size - messages.credited_early
        if more > self._place.limits.window // 2:
            messages.credited_early += more
            self.owner.credit(self, more)

    def _compressed(self) -> CallRefused:
        assert self._head is not None
        if self._head.encoding == IDENTITY:
            return CallRefused(CallStatus.INTERNAL, "a compressed message without grpc-encoding")
        return CallRefused(CallStatus.UNIMPLEMENTED, "messages are not compressed here")

    def end(self) -> None:
        method, call, messages = self._method, self._call, self._messages
        if self._head is not None and self._head.http_status != 200:
            self.finish_plain(http_block(self._head.http_status), HTTP_TEXT)
            self._done()
            return
        if method is None or call is None or self.end_block is not None:
            return
        if messages is not None:
            messages.finish(broken=bool(self._buffer))
            return
        buffer = self._buffer
        size = int.from_bytes(buffer[1:5], "big")
        if len(buffer) < MESSAGE_HEAD_SIZE or len(buffer) != MESSAGE_HEAD_SIZE + size:
            self._end_with(CallStatus.INTERNAL, "a request has exactly one whole message")
            return
        request = bytes(buffer[MESSAGE_HEAD_SIZE:])
        self._buffer = b""
        if method.kind is CallKind.UNARY:
            self._start(self._run_unary(method, call, request))
        else:
            self._start(self._run_streamed(method, call, request))

    def gone(self) -> None:
        self._over()

    def expired(self) -> None:
        """The deadline of the call has passed."""
        self._tick = -1
        if self.closed:
            return
        if self.pending_size:
            self.owner.reset(self, FaultCode.CANCEL)
        else:
            self._end_with(CallStatus.DEADLINE_EXCEEDED, LATE)
        self._over()

    def drained(self) -> None:
        room = self._room
        if room is not None and not room.done():
            room.set_result(None)

    # The handler.

    def _start(self, running: Coroutine[None, None, None]) -> None:
        self._task = self._place.loop.create_task(running)

    async def _run_unary(self, method: CalledMethod, call: RemoteCall, request: bytes) -> None:
        assert method.unary is not None
        self._started = True
        try:
            answer = await method.unary(call, request)
            if self._place.held.answers + len(answer) > self._place.limits.answers_held_max:
                raise _too_much()
            self.write(answer)
            self._end_with(CallStatus.OK, "")
        except CallRefused as refused:
            self._refuse(refused)
        except Exception as bug:
            self._report(bug)
        finally:
            self._done()

    async def _run_streamed(self, method: CalledMethod, call: RemoteCall, request: bytes) -> None:
        assert method.streamed is not None
        await self._run_messages(method.streamed(call, request))

    async def _run_both_ways(
        self, method: CalledMethod, call: RemoteCall, messages: "CallMessages"
    ) -> None:
        assert method.both_ways is not None
        await self._run_messages(method.both_ways(call, messages))

    async def _run_messages(self, answers: AsyncIterator[bytes]) -> None:
        place, self._started = self._place, True
        try:
            try:
                async for answer in answers:
                    if place.held.answers + len(answer) > place.limits.answers_held_max:
                        raise _too_much()
                    self.write(answer)
                    if self.pending_size > place.limits.gathered_max or (
                        self.pending_size > self.send_left
                    ):
                        await self._has_room()
            finally:
                close = getattr(answers, "aclose", None)
                if close is not None:
                    await close()
            self._end_with(CallStatus.OK, "")
        except CallRefused as refused:
            self._refuse(refused)
        except Exception as bug:
            self._report(bug)
        finally:
            self._done()

    async def _has_room(self) -> None:
        """Until everything that was written has left for the caller."""
        self._room = self._place.loop.create_future()
        try:
            await self._room
        finally:
            self._room = None

    # The end.

    def _end_with(self, status: CallStatus, message: str) -> None:
        if self.closed or self.end_block is not None:
            return
        if self.answered or self.pending_size:
            self.finish(end_block(status, message))
        else:
            self.finish_at_once(only_block(status, message))
        if self._task is None:
            self._done()

    def _refuse(self, refused: CallRefused) -> None:
        self._end_with(refused.status, refused.message)
        self._over()

    def _report(self, bug: Exception) -> None:
        BUGS.report(bug, method=self._call.method if self._call else "")
        self._end_with(CallStatus.INTERNAL, BUG)

    def _over(self) -> None:
        """Whatever still runs is for nobody."""
        if self._task is None:
            self._done()
        elif not self._started:
            self._task.cancel()  # It will not run at all, and cannot say so.
            self._done()
        elif self._task is not asyncio.current_task(self._place.loop):
            self._task.cancel()

    def _done(self) -> None:
        """Once: it counts no more."""
        place, self._method = self._place, None
        if self._held >= 0:
            place.held.requests -= self._held
            self._held = -1
            place.ended()
        if self._tick >= 0:
            place.deadlines.remove(self, self._tick)
            self._tick = -1


def _is_whole(payload: bytes, method: CalledMethod) -> bool:
    """Is this one message that may be taken?"""
    return (
        len(payload) >= MESSAGE_HEAD_SIZE
        and not payload[0]
        and int.from_bytes(payload[1:5], "big") == len(payload) - MESSAGE_HEAD_SIZE
        and len(payload) <= method.request_size_max
    )


def _too_much() -> CallRefused:
    return CallRefused(CallStatus.RESOURCE_EXHAUSTED, "too many answers wait to be read")


class CallMessages:
    """The messages of a caller, in order; ends when it has said its last."""

    def __init__(self, stream: RunningCall) -> None:
        self._stream = stream
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._wanted: asyncio.Future[None] | None = None
        self._ended = False
        self._broken = False
        self.credited_early = 0
        """Bytes of a message that is not whole, credited before it was taken."""

    def put(self, message: bytes, size: int) -> None:
        credited_early, self.credited_early = min(size, self.credited_early), 0
        self._waiting.append((message, size - credited_early))
        self._tell()

    def finish(self, *, broken: bool) -> None:
        self._ended, self._broken = True, broken
        self._tell()

    def _tell(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    def __aiter__(self) -> "CallMessages":
        return self

    async def __anext__(self) -> bytes:
        while not self._waiting:
            if self._broken:
                raise CallRefused(CallStatus.INTERNAL, "the last message is not whole")
            if self._ended:
                raise StopAsyncIteration
            self._wanted = asyncio.get_running_loop().create_future()
            await self._wanted
        message, size = self._waiting.popleft()
        self._stream.release(MESSAGE_HEAD_SIZE + len(message))
        self._stream.owner.credit(self._stream, size)
        return message
