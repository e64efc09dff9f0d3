"""A handler that remembers, and peers on both sides that send whatever bytes a test wants."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

from ternmq.core.clock import Clock, SystemClock
from ternmq.core.errors import TernError
from ternmq.rpc.address import join_address
from ternmq.rpc.connection import Connection
from ternmq.rpc.server import Listener, Peer, ServerLimits, listening
from ternmq.wire.decoder import SHARED_SIZE, FrameDecoder
from ternmq.wire.frame import Frame, pack_header
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome, read_failure
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack
from tests.waiting import until

HELLO = Hello(protocol=PROTOCOL_VERSION, app="shop", version="0.1", session=b"s" * 16)
WAIT = 20.0  # Seconds until a test that hangs is called failed; nothing is measured by it.


class Echo:
    """Answers with the payload, READ never; raises `error` instead; remembers what happened."""

    def __init__(self, *, heartbeat_ms: int = 3_000) -> None:
        self.heartbeat_ms = heartbeat_ms
        self.welcomed: list[Peer] = []
        self.gone: list[Peer] = []
        self.frames: list[Frame] = []
        self.refuse: TernError | None = None
        self.error: Exception | None = None

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        if self.refuse is not None:
            raise self.refuse
        self.welcomed.append(peer)
        return Welcome(
            protocol=PROTOCOL_VERSION,
            version="0.1",
            role="broker",
            node="n",
            heartbeat_ms=self.heartbeat_ms,
        )

    def frame(self, peer: Peer, frame: Frame) -> None:
        self.frames.append(frame)
        if self.error is not None:
            raise self.error
        if frame.command != Command.READ and not frame.flags & Flag.ONE_WAY:
            peer.answer(frame.command, frame.correlation, frame.payload)

    def lost(self, peer: Peer) -> None:
        self.gone.append(peer)


class TurnedClock:
    """A clock that the test turns; the server looks at it with its next sweep."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1_000)

    def monotonic(self) -> float:
        return self.seconds

    async def turn(self, listener: Listener, seconds: float) -> None:
        """Let time pass, and wait until the server has looked."""
        self.seconds += seconds
        await until(lambda: listener._pool.now == self.seconds)


@asynccontextmanager
async def serving(
    handler: Echo, *, clock: Clock | None = None, **limits: Any
) -> AsyncIterator[Listener]:
    async with listening(
        "127.0.0.1", 0, handler, limits=ServerLimits(**limits), clock=clock or SystemClock()
    ) as listener:
        yield listener


async def connected(listener: Listener) -> Connection:
    return await Connection.open(join_address(*listener.address), HELLO, timeout=WAIT)


def a_frame(command: int, payload: bytes = b"", *, correlation: int, flags: int = 0) -> bytes:
    return pack_header(command, flags, correlation, len(payload)) + payload


def hello_frame(hello: Hello = HELLO, *, correlation: int = 1) -> bytes:
    return a_frame(Command.HELLO, pack(hello), correlation=correlation)


class RawClient:
    """Bytes to a server, frames from it."""

    def __init__(self, listener: Listener) -> None:
        self._address = listener.address
        self._decoder = FrameDecoder(bytearray(SHARED_SIZE))
        self.reader: asyncio.StreamReader = None  # type: ignore[assignment]
        self.writer: asyncio.StreamWriter = None  # type: ignore[assignment]

    async def __aenter__(self) -> "RawClient":
        self.reader, self.writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def greet(self) -> None:
        self.send(hello_frame())
        frame = await self.frame()
        assert frame.command == Command.HELLO and frame.flags == Flag.ANSWER

    async def frame(self) -> Frame:
        """The next frame; one at a time."""
        async with asyncio.timeout(WAIT):
            header = await self.reader.readexactly(16)
            size = int.from_bytes(header[:4], "little")
            payload = await self.reader.readexactly(size)
        [frame] = self._feed(header + payload)
        return frame

    async def until_closed(self) -> list[Frame]:
        """Everything the server still says, until it closes."""
        async with asyncio.timeout(WAIT):
            try:
                return self._feed(await self.reader.read())
            except ConnectionError:
                return []

    async def reason(self) -> TernError:
        """Why the server closed: its last frame."""
        frames = await self.until_closed()
        assert frames, "closed without a reason"
        assert frames[-1].flags & Flag.ERROR
        return read_failure(frames[-1].payload)

    def _feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        while data:
            buffer = self._decoder.get_buffer()
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            frames += self._decoder.received(size)
            data = data[size:]
        assert self._decoder.failed is None
        return frames


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def bad_server(script: Script) -> AsyncIterator[str]:
    """A server that runs `script` for each connection after reading a HELLO; yields its address."""
    scripts: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        scripts.add(task)
        try:
            header = await reader.readexactly(16)
            await reader.readexactly(int.from_bytes(header[:4], "little"))
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield join_address(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in scripts:
            task.cancel()
        if scripts:
            await asyncio.wait(scripts)
        await server.wait_closed()


def welcome_frame(*, heartbeat_ms: int = 3_000, protocol: int = PROTOCOL_VERSION) -> bytes:
    welcome = Welcome(
        protocol=protocol, version="0.1", role="broker", node="n", heartbeat_ms=heartbeat_ms
    )
    return a_frame(Command.HELLO, pack(welcome), correlation=1, flags=Flag.ANSWER)
