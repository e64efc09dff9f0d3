"""Methods to be called in tests, and both transports that carry them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ternmq.rpc.http2.call_server import CallServer, serving_calls
from ternmq.rpc.http2.calls import CalledMethod, CallKind, CallRefused, CallStatus, RemoteCall
from ternmq.rpc.http2.limits import CallLimits
from tests.unit.rpc.http2 import grpcio_oracle
from tests.waiting import until

SIZE_MAX = 5 * 1024 * 1024


@dataclass
class TestedMethods:
    """A table; notes what its handlers saw."""

    __test__ = False
    calls: list[RemoteCall] = field(default_factory=list)
    began: int = 0
    cancelled: int = 0
    made: int = 0

    def __post_init__(self) -> None:
        unary = {
            "echo": self.echo,
            "wait": self.wait,
            "fail": self.fail,
            "refuse": self.refuse,
        }
        self._methods = {
            f"/t/{name}": CalledMethod(kind=CallKind.UNARY, request_size_max=SIZE_MAX, unary=each)
            for name, each in unary.items()
        }
        self._methods["/t/many"] = CalledMethod(
            kind=CallKind.STREAMED, request_size_max=100, streamed=self.many
        )
        self._methods["/t/talk"] = CalledMethod(
            kind=CallKind.BOTH_WAYS, request_size_max=SIZE_MAX, both_ways=self.talk
        )

    def method(self, path: str) -> CalledMethod | None:
        return self._methods.get(path)

    async def echo(self, call: RemoteCall, request: bytes) -> bytes:
        self.calls.append(call)
        return request

    async def wait(self, call: RemoteCall, request: bytes) -> bytes:
        self.began += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return request

    async def fail(self, call: RemoteCall, request: bytes) -> bytes:
        raise ZeroDivisionError("secret")

    async def refuse(self, call: RemoteCall, request: bytes) -> bytes:
        raise CallRefused(CallStatus(int(request)), "nicht da: é 100% \n")

    async def many(self, call: RemoteCall, request: bytes) -> AsyncIterator[bytes]:
        """`COUNT SIZE`; a count below zero is refused after so many."""
        count, size = map(int, request.split())
        try:
            for at in range(abs(count)):
                self.made += 1
                yield at.to_bytes(4, "big") + bytes(size)
            if count < 0:
                raise CallRefused(CallStatus.ABORTED, "enough")
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def talk(self, call: RemoteCall, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.began += 1
        try:
            async for message in messages:
                if message == b"stop":
                    return
                yield message
            yield b"you said your last"
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise


@asynccontextmanager
async def serving(
    transport: str, table: TestedMethods, limits: CallLimits | None = None
) -> AsyncIterator[int]:
    """Yields the port."""
    if transport == "ours":
        async with serving_calls(table, "127.0.0.1:0", limits) as server:
            yield server.port
            await settled(server)
    else:
        async with grpcio_oracle.serving_calls(table, "127.0.0.1:0") as port:
            yield port


async def settled(server: CallServer) -> None:
    """Whatever the test did, nothing is held when it is over."""
    await until(lambda: not server.calls, "no call is left")
    assert (server.held.requests, server.held.answers) == (0, 0)
    assert len(server.deadlines) == 0
