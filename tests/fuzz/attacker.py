"""A client without manners: sends what it is given over one connection, and notes what comes back.

Everything has to be answered or the connection closed with a reason; an answer must never be
`internal`, which means that the server met something it had not thought of.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from ternmq.client.transport.user_login import UserLogin
from ternmq.core.errors import ProtocolError
from ternmq.rpc.node_proof import Channel, NodeGreeting
from ternmq.wire.decoder import SHARED_SIZE, FrameDecoder
from ternmq.wire.frame import Frame, pack_header
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Challenge, Hello, read_failure
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import pack, unpack

ANSWER_S = 20.0
WAITING = {Command.PULL, Command.READ, Command.ROUTES, Command.TOPIC_NEWS, Command.CONFIRM}
WAITING |= {Command.STANDINGS}
"""Commands that may stay open until there is news."""


@dataclass(slots=True)
class Findings:
    """What an attack brought about."""

    sent: int = 0
    stored: int = 0
    """Batches that got past the door and were answered before something closed the connection."""
    read: int = 0
    """Rows of them that an honest client read, and consumed in order."""
    answers: Counter[str] = field(default_factory=Counter)
    internal: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)


class Attacker:
    """One connection at a time to one server; a closed one is opened again."""

    def __init__(
        self, host: str, port: int, findings: Findings, who: NodeGreeting | UserLogin | None = None
    ) -> None:
        """It is nobody, a user, or one of the servers that has lost its mind."""
        self._address = (host, port)
        self._who = who
        self._findings = findings
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._decoder = FrameDecoder(bytearray(SHARED_SIZE))
        self._correlation = 0

    async def send(self, requests: list[tuple[int, bytes]]) -> None:
        """Send these at once, and wait for all answers; goes on behind one that ends the
        connection."""
        rest = requests
        while rest:
            if self._writer is None:
                await self._open()
            rest = await self._send(rest)

    async def knock(self, frames: list[tuple[int, bytes]]) -> int:
        """Send these as the first frames of a connection; how many were answered as if it was let
        in. A challenge is not: it says nothing but what has to be proven."""
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        let_in = 0
        self._findings.sent += len(frames)
        try:
            async with asyncio.timeout(ANSWER_S):
                for command, payload in frames:
                    self._put(command, payload)
                    while (found := await self._read()) is not None and not found:
                        pass
                    if found is None:
                        return let_in
                    for frame in found:
                        self._note(command, frame)
                        if frame.flags & Flag.ERROR:
                            return let_in
                        try:
                            unpack(frame.payload, Challenge)
                        except ProtocolError:
                            let_in += 1
        except TimeoutError:
            self._findings.unanswered.append(f"{Command(command).name} at the door")
        return let_in

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _open(self) -> None:
        self._decoder = FrameDecoder(bytearray(SHARED_SIZE))
        self._correlation = 0
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        async with asyncio.timeout(ANSWER_S):
            hello = Hello(protocol=PROTOCOL_VERSION, app="fuzz", version="0", session=b"f" * 16)
            if self._who is None:
                await self._ask(Command.HELLO, pack(hello))
                return
            if isinstance(self._who, UserLogin):
                channel = Channel(private=True)
                await self._who.greeting(hello).greet(self._ask, "the server", channel)
                return
            opening = self._who.begin()
            challenge = await self._ask(Command.HELLO, opening.hello)
            auth, wrong = opening.answer(challenge, "the server")
            assert wrong is None
            await self._ask(Command.AUTH, pack(auth))

    async def _ask(self, command: int, payload: bytes) -> bytearray:
        self._put(command, payload)
        while not (frames := await self._read()):
            pass
        assert not frames[0].flags & Flag.ERROR, read_failure(frames[0].payload)
        return frames[0].payload

    def _put(self, command: int, payload: bytes) -> int:
        assert self._writer is not None
        self._correlation += 1
        self._writer.write(pack_header(command, 0, self._correlation, len(payload)) + payload)
        return self._correlation

    async def _send(self, requests: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """What was not looked at, because something before it ended the connection."""
        first = self._correlation + 1
        open_ = {self._put(command, payload): command for command, payload in requests}
        looked_at = len(requests)
        try:
            async with asyncio.timeout(ANSWER_S):
                while any(command not in WAITING for command in open_.values()):
                    frames = await self._read()
                    if frames is None:
                        answered = [number for number in open_ if number >= first]
                        await self.close()
                        # The one that is not answered first is the one that was refused.
                        looked_at = min(answered) - first + 1 if answered else looked_at
                        return requests[looked_at:]
                    for frame in frames:
                        self._note(open_.pop(frame.correlation, None), frame)
        except TimeoutError:
            late = [Command(c).name for c in open_.values() if c not in WAITING]
            self._findings.unanswered += late
            await self.close()
        finally:
            self._findings.sent += looked_at
        return []

    async def _read(self) -> list[Frame] | None:
        """Frames that came, or None at the end of the connection."""
        assert self._reader is not None
        try:
            data = await self._reader.read(65_536)
        except ConnectionError:
            return None
        if not data:
            return None
        frames: list[Frame] = []
        at = 0
        while at < len(data):
            buffer = self._decoder.get_buffer()
            taken = min(len(buffer), len(data) - at)
            buffer[:taken] = data[at : at + taken]
            at += taken
            frames += self._decoder.received(taken)
        return frames

    def _note(self, command: int | None, frame: Frame) -> None:
        if command is None:
            return
        if not frame.flags & Flag.ERROR:
            self._findings.answers["ok"] += 1
            if command in (Command.PUBLISH, Command.PUBLISH_ONCE, Command.HALF):
                self._findings.stored += 1
            return
        error = read_failure(frame.payload)
        self._findings.answers[error.code] += 1
        if error.code == "internal":
            self._findings.internal.append(f"{Command(command).name}: {error.message}")
