"""What stands between handlers of remote calls and the transport that carries them.

A transport takes a `CallTable`: for each path (`/package.Service/Method`) one `CalledMethod`, whose
handler is a plain coroutine or async generator over bytes. It never learns what is in the bytes,
and handlers never learn what carries them, so both are tested without the other.

What a transport promises to handlers:

1. A request has at most `request_size_max` bytes; a larger one ends with RESOURCE_EXHAUSTED and is
   not handed on. Header names in `metadata` are lower case.
2. When the caller has gone, has cancelled, or its deadline has passed, the handler is cancelled
   (where it waits; of a generator also by `aclose`).
3. A generator is asked for its next message when the one before could be written: a caller that
   does not read holds its own handler, and no memory beyond one message and a window.
4. The messages of a caller in a BOTH_WAYS call come in order; their iterator ends when the caller
   has said its last.

What a handler promises: it answers, or raises `CallRefused`. Anything else that it raises is a bug
of ours: the transport logs it, the caller gets INTERNAL without its text, and the process goes on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol


class CallStatus(IntEnum):
    """How a call ended, by the numbers of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class CallRefused(Exception):
    """Ends a call with a status other than OK, and a text for its caller."""

    def __init__(self, status: CallStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class CallKind(StrEnum):
    """How many messages go which way."""

    UNARY = "unary"
    """One, and one back."""
    STREAMED = "streamed"
    """One, and any number back."""
    BOTH_WAYS = "both_ways"
    """Any number each way, for as long as both like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCall:
    """One call, as its handler sees it."""

    method: str
    """Its path."""
    metadata: Mapping[str, str]
    """The caller's headers without those of HTTP/2 and gRPC; of a repeated one the last."""
    deadline: float | None = None
    """By the loop's clock; None: the caller waits for ever."""
    peer: str = ""
    """The caller's address, for logs."""
    secure: bool = False
    """It came over TLS."""


UnaryHandler = Callable[[RemoteCall, bytes], Awaitable[bytes]]
StreamedHandler = Callable[[RemoteCall, bytes], AsyncIterator[bytes]]
BothWaysHandler = Callable[[RemoteCall, AsyncIterator[bytes]], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledMethod:
    """A method that can be called; exactly the handler of its kind is set."""

    kind: CallKind
    request_size_max: int
    unary: UnaryHandler | None = None
    streamed: StreamedHandler | None = None
    both_ways: BothWaysHandler | None = None

    def __post_init__(self) -> None:
        handlers = {
            CallKind.UNARY: self.unary,
            CallKind.STREAMED: self.streamed,
            CallKind.BOTH_WAYS: self.both_ways,
        }
        assert [kind for kind, each in handlers.items() if each is not None] == [self.kind]


class CallTable(Protocol):
    """Where a transport looks a call up."""

    def method(self, path: str) -> CalledMethod | None:
        """None: the call ends with UNIMPLEMENTED."""
